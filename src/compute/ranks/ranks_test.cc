#include "compute/ranks/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/contain.h"
#include "base/random.h"
#include "compute/ranks/local_ranks.h"

namespace talon {
namespace {

// Runs `part` on every rank, each in a thread.
void RunRanks(int size, const std::function<void(Ranks&)>& part) {
  const auto ranks = LocalRanks::Create(size);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { part(*rank); });
  for (std::thread& thread : threads) thread.join();
}

float RandomValue(uint64_t place) {
  return static_cast<float>(UniformDraw({.seed = 7, .position = place}) - 0.5) *
         static_cast<float>(1 << (place % 11));
}

TEST(RanksTest, SumsArePairwiseAndTheSameOnAllRanks) {
  constexpr int kRows = 3;
  constexpr int kCols = 17;
  constexpr int kStride = 20;
  const auto value = [](int rank, int r, int c) {
    return RandomValue((rank * kRows + r) * 64 + c);
  };
  for (const int size : {1, 2, 4, 8}) {
    std::vector<std::vector<float>> results(size);
    RunRanks(size, [&](Ranks& ranks) {
      std::vector<float> memory(kRows * kStride, -1.0f);
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kCols; ++c) memory[r * kStride + c] = value(ranks.rank(), r, c);
      }
      ranks.Sum({memory.data(), kRows, kCols, kStride});
      results[ranks.rank()] = memory;
    });
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) {
        std::vector<float> sums;
        for (int rank = 0; rank < size; ++rank) sums.push_back(value(rank, r, c));
        for (int step = 1; step < size; step *= 2) {
          for (int rank = 0; rank < size; rank += 2 * step) sums[rank] += sums[rank + step];
        }
        for (int rank = 0; rank < size; ++rank) {
          ASSERT_EQ(results[rank][r * kStride + c], sums[0]) << rank << " of " << size;
        }
      }
      EXPECT_EQ(results[0][r * kStride + kCols], -1.0f);  // what lies between rows
    }
  }
}

TEST(RanksTest, AllGatherWhatEachHas) {
  for (const int size : {1, 2, 4, 8}) {
    std::vector<int64_t> bounds = {0};
    for (int rank = 0; rank < size; ++rank) bounds.push_back(bounds.back() + rank * 5 % 7);
    RunRanks(size, [&](Ranks& ranks) {
      std::vector<uint8_t> data(bounds.back(), 0);
      std::vector<uint8_t> expected(bounds.back());
      for (int64_t i = 0; i < bounds.back(); ++i) expected[i] = static_cast<uint8_t>(i + 1);
      for (int64_t i = bounds[ranks.rank()]; i < bounds[ranks.rank() + 1]; ++i) {
        data[i] = expected[i];
      }
      ranks.AllGather(data.data(), bounds);
      EXPECT_EQ(data, expected) << ranks.rank() << " of " << size;
    });
  }
}

TEST(RanksTest, LeaderGathersTheColumnsOfAll) {
  const std::vector<int> bounds = {0, 3, 4, 9, 11};
  std::vector<float> whole(2 * 11, -1.0f);
  RunRanks(4, [&](Ranks& ranks) {
    const int first = bounds[ranks.rank()];
    const int cols = bounds[ranks.rank() + 1] - first;
    std::vector<float> part;
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < cols; ++c) part.push_back(static_cast<float>(100 * r + first + c));
    }
    ranks.GatherColumns({part.data(), 2, cols, cols}, bounds,
                        ranks.leads() ? MatrixView{whole.data(), 2, 11, 11} : MatrixView());
  });
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 11; ++c) EXPECT_EQ(whole[r * 11 + c], static_cast<float>(100 * r + c));
  }
}

TEST(RanksTest, LeaderGathersWhatEachHas) {
  const std::vector<int64_t> bounds = {0, 3, 3, 9, 11};
  std::vector<uint8_t> whole(11);
  RunRanks(4, [&](Ranks& ranks) {
    const int64_t first = bounds[ranks.rank()], last = bounds[ranks.rank() + 1];
    std::vector<uint8_t> own;
    for (int64_t i = first; i < last; ++i) own.push_back(static_cast<uint8_t>(i + 1));
    if (!ranks.leads()) return ranks.Gather(own.data(), bounds);
    std::copy(own.begin(), own.end(), whole.begin());
    ranks.Gather(whole.data(), bounds);
  });
  for (int i = 0; i < 11; ++i) EXPECT_EQ(whole[i], i + 1);
}

TEST(RanksTest, RollCallNamesTheRankThatIsGone) {
  RunRanks(4, [&](Ranks& ranks) {
    if (ranks.rank() == 2) return;
    const Status status = Contain([&] { ranks.CallRoll("no answer"); });
    const std::string message(status.message());
    EXPECT_TRUE(message.starts_with("no answer; rank 2 did not")) << ranks.rank() << message;
  });
  RunRanks(2, [&](Ranks& ranks) {
    const Status status = Contain([&] { ranks.CallRoll("no answer"); });
    EXPECT_EQ(status.message(), "no answer");
  });
}

TEST(RanksTest, ASilentRankIsNamedWhenTheDeadlineHasPassed) {
  const auto ranks = LocalRanks::Create(4);
  ranks[1]->SetDeadline(0.01);
  uint8_t byte = 0;
  const Status status = Contain([&] { ranks[1]->Receive(3, {&byte, 1}); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("rank 3"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace talon
