#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace talon {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryTaskRunsOnce) {
  ThreadPool pool(GetParam());
  for (int64_t tasks : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::atomic<int>> calls(tasks);
    pool.Run(tasks, [&](int64_t task, int thread) {
      ASSERT_LT(thread, GetParam());
      calls[task].fetch_add(1);
    });
    for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(ThreadPoolTest, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(GetParam());
  std::vector<int> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.Run(64, [&](int64_t task, int) { values[task] = round; });
    for (int value : values) ASSERT_EQ(value, round);
  }
}

TEST_P(ThreadPoolTest, WakesAfterSleeping) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> done{0};
    pool.Run(8, [&](int64_t, int) { done.fetch_add(1); });
    EXPECT_EQ(done.load(), 8);
  }
}

TEST_P(ThreadPoolTest, WhatATaskThrowsReachesTheCaller) {
  ThreadPool pool(GetParam());
  for (const int64_t bad : {0, 1, 40, 99}) {
    const auto run = [&] {
      pool.Run(100, [&](int64_t task, int) {
        if (task == bad) throw std::runtime_error("task");
      });
    };
    EXPECT_THROW(run(), std::runtime_error);
    std::atomic<int> done{0};
    pool.Run(100, [&](int64_t, int) { done.fetch_add(1); });
    EXPECT_EQ(done.load(), 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(CoresOfQuota, AreThoseOfTheCgroup) {
  const auto cores = [](const char* text) {
    std::istringstream file(text);
    return CoresOfQuota(file);
  };
  EXPECT_EQ(cores("400000 100000\n"), 4);
  EXPECT_EQ(cores("150000 100000\n"), 2);
  EXPECT_EQ(cores("50000 100000\n"), 1);
  EXPECT_EQ(cores("0 100000\n"), 1);
  for (const char* unlimited : {"max 100000\n", "", "100000", "100000 0\n"}) {
    EXPECT_GE(cores(unlimited), 1 << 20) << unlimited;
  }
}

TEST(TaskInStretches, IsAPermutationWhereThreadsGoOn) {
  for (int threads = 1; threads <= 5; ++threads) {
    for (int64_t tasks = 1; tasks <= 23; ++tasks) {
      std::vector<bool> seen(tasks, false);
      for (int64_t task = 0; task < tasks; ++task) {
        const int64_t place = TaskInStretches(task, tasks, threads);
        ASSERT_TRUE(place >= 0 && place < tasks && !seen[place]);
        seen[place] = true;
        if (task < threads) continue;
        EXPECT_EQ(place, TaskInStretches(task - threads, tasks, threads) + 1);
      }
    }
  }
}

}  // namespace
}  // namespace talon
