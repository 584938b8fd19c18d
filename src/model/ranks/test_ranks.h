// A model on several ranks that are threads, for tests.
#ifndef TALON_MODEL_RANKS_TEST_RANKS_H_
#define TALON_MODEL_RANKS_TEST_RANKS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compute/ranks/local_ranks.h"
#include "compute/test_device.h"
#include "model/decoder.h"
#include "model/ranks/follower.h"

namespace talon {

class TestRanks {
 public:
  // `new_backend`: for each rank; empty: the device under test.
  TestRanks(const std::string& dir, int size, LoadOptions options,
            const std::function<std::unique_ptr<Backend>()>& new_backend = {})
      : ranks_(LocalRanks::Create(size)), results_(size) {
    for (int rank = 0; rank < size; ++rank) {
      backends_.push_back(new_backend ? new_backend() : NewTestBackend(1, size));
      options.ranks = ranks_[rank].get();
      auto decoder = Decoder::Load(dir, backends_[rank].get(), options);
      EXPECT_TRUE(decoder.ok()) << decoder.status().message();
      decoders_.push_back(decoder.ok() ? std::move(decoder).value() : nullptr);
    }
    for (int rank = 1; rank < size; ++rank) {
      followers_.emplace_back([this, rank] {
        results_[rank] =
            RankFollower(ranks_[rank].get(), decoders_[rank].get(), backends_[rank].get()).Run();
      });
    }
  }
  ~TestRanks() { Stop(); }

  Decoder* leader() { return decoders_[0].get(); }
  Backend* backend() { return backends_[0].get(); }
  Decoder* decoder(int rank) { return decoders_[rank].get(); }
  Ranks* ranks(int rank) { return ranks_[rank].get(); }

  // Ends the leader. What every follower ended with.
  const std::vector<Status>& Stop() {
    decoders_[0].reset();
    for (std::thread& follower : followers_) {
      if (follower.joinable()) follower.join();
    }
    return results_;
  }

 private:
  std::vector<std::unique_ptr<Ranks>> ranks_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::vector<std::thread> followers_;
  std::vector<Status> results_;  // by rank
};

}  // namespace talon

#endif  // TALON_MODEL_RANKS_TEST_RANKS_H_
