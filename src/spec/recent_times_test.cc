#include "spec/recent_times.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(RecentTimes, KnowsOnlyTheLast) {
  RecentTimes times;
  EXPECT_TRUE(times.empty());
  times.Add(20);
  EXPECT_EQ(times.Median(), 20);
  times.Add(1);
  EXPECT_EQ(times.Median(), 1);
  times.Add(3);
  EXPECT_EQ(times.size(), 3u);
  EXPECT_EQ(times.Median(), 3);
  EXPECT_EQ(times.Minimum(), 1);
  for (const double time : {4, 5, 6, 7}) times.Add(time);  // 3 4 5 6 7
  EXPECT_EQ(times.size(), RecentTimes::kWindow);
  EXPECT_EQ(times.Median(), 5);
  EXPECT_EQ(times.Minimum(), 3);
}

TEST(RecentTimes, MeansWithAndWithoutAnOutlier) {
  RecentTimes times;
  times.Add(20);
  EXPECT_EQ(times.MeanButLongest(), 20);
  times.Add(2);
  EXPECT_EQ(times.MeanButLongest(), 2);
  EXPECT_EQ(times.Mean(), 11);
  for (const double time : {0, 0, 4}) times.Add(time);
  EXPECT_EQ(times.MeanButLongest(), 1.5);
  EXPECT_EQ(times.Mean(), 5.2);
  times.Add(2);  // 2 0 0 4 2
  EXPECT_EQ(times.MeanButLongest(), 1);
}

}  // namespace
}  // namespace talon
