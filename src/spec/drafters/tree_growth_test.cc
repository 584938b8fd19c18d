#include "spec/drafters/tree_growth.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

// Levels run out of `steps` proposals that would have one more, each with the same chance.
int LevelsRun(const LevelPrice& price, int steps, double mass, double seconds) {
  int run = 0;
  for (int step = 0; step < steps; ++step) {
    if (!price.Pays(mass)) continue;
    price.Observe(seconds);
    ++run;
  }
  return run;
}

TEST(LevelPrice, RunsLevelsThatAreWorthTheirTime) {
  LevelTimes times;
  const LevelPrice price{.seconds_per_token = 1e-3, .times = &times};
  EXPECT_EQ(LevelsRun(price, 100, 0.5, 3e-4), 100);
  EXPECT_LE(LevelsRun(price, 100, 0.2, 3e-4), 4);
}

TEST(LevelPrice, LevelsAreFreeWithoutAPrice) {
  LevelTimes times;
  EXPECT_EQ(LevelsRun({.seconds_per_token = 0, .times = &times}, 100, 0.01, 1), 100);
}

// A first level that took long (cold memory, another process) used to be the last one ever run.
TEST(LevelPrice, ASlowFirstLevelIsForgotten) {
  LevelTimes times;
  const LevelPrice price{.seconds_per_token = 1e-3, .times = &times};
  ASSERT_TRUE(price.Pays(0.5));
  price.Observe(20e-3);
  EXPECT_EQ(LevelsRun(price, 100, 0.5, 3e-4), 100);
}

TEST(LevelPrice, ARefusedLevelIsTimedAgain) {
  LevelTimes times;
  const LevelPrice price{.seconds_per_token = 1e-3, .times = &times};
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) price.Observe(20e-3);
  EXPECT_GE(LevelsRun(price, 100, 0.5, 3e-4), 60);
}

}  // namespace
}  // namespace talon
