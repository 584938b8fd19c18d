// Ranks that are threads of one process, for tests.
#ifndef TALON_COMPUTE_RANKS_LOCAL_RANKS_H_
#define TALON_COMPUTE_RANKS_LOCAL_RANKS_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "compute/ranks/ranks.h"

namespace talon {

class LocalRanks : public Ranks {
 public:
  // One for each of `size` threads.
  static std::vector<std::unique_ptr<Ranks>> Create(int size);

  void Send(int to, std::span<const uint8_t> bytes) override;
  void Receive(int from, std::span<uint8_t> bytes) override;
  void Exchange(int peer, std::span<const uint8_t> out, std::span<uint8_t> in) override {
    Send(peer, out);
    Receive(peer, in);
  }

 private:
  struct Mail {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<std::deque<std::vector<uint8_t>>> queues;  // [from * size + to]
  };
  LocalRanks(int rank, int size, std::shared_ptr<Mail> mail)
      : Ranks(rank, size), mail_(std::move(mail)) {}

  std::shared_ptr<Mail> mail_;  // shared by all ranks, until the last is gone
};

}  // namespace talon

#endif  // TALON_COMPUTE_RANKS_LOCAL_RANKS_H_
