#include "spec/drafters/tree_growth.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

// Levels run out of `steps` proposals that would have one more, each with the same chance.
int LevelsRun(const LevelPrice& price, int steps, double mass, double seconds) {
  int run = 0;
  for (int step = 0; step < steps; ++step) {
    if (!price.Pays(mass, 1)) continue;
    price.Observe(seconds);
    ++run;
  }
  return run;
}

TEST(LevelPrice, RunsLevelsThatAreWorthTheirTime) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  EXPECT_EQ(LevelsRun(price, 100, 0.5, 3e-4), 100);
  EXPECT_LE(LevelsRun(price, 100, 0.2, 3e-4), 4);
}

TEST(LevelPrice, LevelsAreFreeWithoutAPrice) {
  LevelTimes times;
  EXPECT_EQ(LevelsRun({.prices = {}, .times = &times}, 100, 0.01, 1), 100);
}

// A first level that took long (cold memory, another process) used to be the last one ever run.
TEST(LevelPrice, ASlowFirstLevelIsForgotten) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  ASSERT_TRUE(price.Pays(0.5, 1));
  price.Observe(20e-3);
  EXPECT_EQ(LevelsRun(price, 100, 0.5, 3e-4), 100);
}

TEST(LevelPrice, ARefusedLevelIsTimedAgain) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) price.Observe(20e-3);
  EXPECT_GE(LevelsRun(price, 100, 0.5, 3e-4), 60);
}

// Three times are enough to judge by; later ones keep them up to date.
TEST(LevelPrice, LevelsAreWaitedForUntilTheirTimeIsKnown) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  int timed = 0;
  for (; price.IsDue() && timed < 10; ++timed) price.Observe(3e-4);
  EXPECT_EQ(timed, 3);
  int untimed = 1;  // the one that ended the loop
  while (!price.IsDue() && untimed < 1000) ++untimed;
  EXPECT_EQ(untimed, 128);
}

GrowingTree TreeOf(int steps) {
  return {.tree = {/*top_k=*/4, steps, /*max_nodes=*/16}, .prefix = {{}, 0}};
}

TEST(LevelForecast, QueuesTheLevelsThatEarlierTreesMadePay) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) price.Observe(3e-4);
  LevelForecast forecast(5);
  std::vector<GrowingTree> trees = {TreeOf(5), TreeOf(2)};
  EXPECT_EQ(forecast.CutTrees(trees, price), 5);  // nothing is known of their beams
  for (int i = 0; i < 100; ++i) {
    for (int level = 1; level <= 5; ++level) forecast.Observe(level, level < 3 ? 0.8 : 0.2);
  }
  EXPECT_EQ(forecast.CutTrees(trees, price), 3);
  EXPECT_EQ(trees[0].tree.steps(), 3);
  EXPECT_EQ(trees[1].tree.steps(), 2);
  // Beams of several trees share the cost of a level.
  std::vector<GrowingTree> many(5, TreeOf(5));
  EXPECT_EQ(forecast.CutTrees(many, price), 5);
}

// Refusing forever would never time a level again.
TEST(LevelForecast, RefusedLevelsAreRunAndTimedAgain) {
  LevelTimes times;
  const LevelPrice price{.prices = {.token = 1e-3}, .times = &times};
  for (size_t i = 0; i < RecentTimes::kWindow; ++i) price.Observe(20e-3);
  LevelForecast forecast(5);
  int refused = 0;
  for (;; ++refused) {
    std::vector<GrowingTree> trees = {TreeOf(5)};
    ASSERT_LT(refused, 1000);
    EXPECT_FALSE(price.IsDue());
    if (forecast.CutTrees(trees, price) == 5) break;
    EXPECT_EQ(trees[0].tree.steps(), 1);
  }
  EXPECT_GT(refused, 10);
  EXPECT_TRUE(price.IsDue());
  price.Observe(3e-4);
  EXPECT_FALSE(price.IsDue());
}

// Without a price nothing is refused, so nothing is waited for.
TEST(LevelForecast, FreeLevelsAreNeverTimed) {
  LevelTimes times;
  const LevelPrice price{.prices = {}, .times = &times};
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(price.IsDue());
}

}  // namespace
}  // namespace talon
