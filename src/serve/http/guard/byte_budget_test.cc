#include "serve/http/guard/byte_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace talon {
namespace {

constexpr std::chrono::milliseconds kNoWait(0);
constexpr std::chrono::milliseconds kLong(60'000);

TEST(ByteBudget, SharesFitUpToTheLimit) {
  ByteBudget budget(10);
  const auto first = budget.Take(6, kNoWait);
  auto second = budget.Take(4, kNoWait);
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(budget.Take(1, kNoWait));
  second.Release();
  EXPECT_FALSE(second);
  EXPECT_FALSE(budget.Take(5, kNoWait));
  EXPECT_TRUE(budget.Take(4, kNoWait));
}

TEST(ByteBudget, AShareIsGivenBackOnce) {
  ByteBudget budget(10);
  auto first = budget.Take(10, kNoWait);
  ByteBudget::Share moved = std::move(first);
  first.Release();
  EXPECT_FALSE(budget.Take(1, kNoWait));
  moved = ByteBudget::Share();
  moved.Release();
  EXPECT_TRUE(budget.Take(10, kNoWait));
}

TEST(ByteBudget, MoreThanTheLimitFitsAlone) {
  ByteBudget budget(10);
  {
    const auto all = budget.Take(100, kNoWait);
    EXPECT_TRUE(all);
    EXPECT_FALSE(budget.Take(1, kNoWait));
  }
  const auto one = budget.Take(1, kNoWait);
  EXPECT_FALSE(budget.Take(100, kNoWait));
}

TEST(ByteBudget, OneShareGrowsBeyondTheLimitAndTheOthersWaitForIt) {
  ByteBudget budget(10);
  auto first = budget.Take(4, kNoWait);
  auto second = budget.Take(4, kNoWait);
  EXPECT_TRUE(first.GrowTo(6, kNoWait)) << "within the limit";
  EXPECT_TRUE(second.GrowTo(8, kNoWait)) << "beyond it, or both would wait";
  EXPECT_FALSE(first.GrowTo(7, kNoWait));
  EXPECT_EQ(first.bytes(), 6u);
  EXPECT_TRUE(second.GrowTo(20, kNoWait));
  EXPECT_FALSE(budget.Take(1, kNoWait)) << "a share that has nothing can wait";
  second.Release();
  EXPECT_TRUE(first.GrowTo(11, kNoWait));
  first = ByteBudget::Share();
  EXPECT_TRUE(budget.Take(10, kNoWait)) << "all has come back";
}

TEST(ByteBudget, SharesThatGrowDoNotWaitInACircle) {
  constexpr int kShares = 8;
  ByteBudget budget(kShares);
  std::vector<ByteBudget::Share> shares(kShares);
  for (auto& share : shares) share = budget.Take(1, kNoWait);
  std::atomic<int> grown{0};
  std::vector<std::thread> threads;
  for (auto& share : shares) {
    threads.emplace_back([&] {
      grown += share.GrowTo(2, kLong) && share.GrowTo(4, kLong) ? 1 : 0;
      share.Release();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(grown, kShares);
}

TEST(ByteBudget, WaitersGoOnAsBytesComeBack) {
  ByteBudget budget(10);
  std::atomic<int> inside{0}, most{0}, admitted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&] {
      const auto share = budget.Take(5, kLong);
      if (!share) return;
      const int now = ++inside;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) continue;
      ++admitted;
      --inside;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admitted, 20);
  EXPECT_LE(most, 2);
}

}  // namespace
}  // namespace talon
