#include "spec/specpv/governor.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(AgreementByDistanceTest, BucketsArePowersOfTwo) {
  const struct {
    int distance, bucket;
  } cases[] = {{1, 0},  {2, 1},  {3, 1},   {4, 2},   {7, 2},   {8, 3},
               {63, 5}, {64, 6}, {127, 6}, {128, 7}, {129, 7}, {100000, 7}};
  for (const auto& [distance, bucket] : cases) {
    EXPECT_EQ(AgreementByDistance::BucketOf(distance), bucket) << distance;
  }
  EXPECT_EQ(AgreementByDistance::FirstDistance(0), 1);
  EXPECT_EQ(AgreementByDistance::FirstDistance(AgreementByDistance::kBuckets - 1), 128);
}

// Row 15' of the timeline: trunk nodes 1 to 36 agree (node 0 was checked before), 37 does not.
TEST(AgreementByDistanceTest, TrunkUpToTheFirstDisagreement) {
  AgreementByDistance agreement;
  agreement.RecordTrunk(36, /*disagreed=*/true);
  const int64_t checked[] = {1, 2, 4, 8, 16, 6, 0, 0};
  for (int bucket = 0; bucket < AgreementByDistance::kBuckets; ++bucket) {
    EXPECT_EQ(agreement.checked(bucket), checked[bucket]) << bucket;
    EXPECT_EQ(agreement.disagreed(bucket), bucket == 5 ? 1 : 0) << bucket;
  }
  EXPECT_EQ(agreement.TotalChecked(), 37);
  EXPECT_EQ(agreement.TotalDisagreed(), 1);
}

TEST(AgreementByDistanceTest, MergesAndPublishes) {
  AgreementByDistance sum, other;
  sum.RecordTrunk(5, false);
  other.RecordTrunk(0, true);
  other.Record(130, false);
  sum.Merge(other);
  Metrics metrics;
  sum.Publish(&metrics);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvCheckedTokens, "1"), 2);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvCheckedTokens, "2"), 2);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvCheckedTokens, "4"), 2);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvCheckedTokens, "128"), 1);
  EXPECT_EQ(metrics.Total(Counter::kSpecPvCheckedTokens), 7);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvArgmaxDisagreements, "1"), 1);
  EXPECT_EQ(metrics.Total(Counter::kSpecPvArgmaxDisagreements), 2);
}

class GovernorTest : public testing::Test {
 protected:
  // A window of checked tokens with this many disagreements.
  static void Window(DriftGovernor* governor, int disagreements) {
    governor->RecordTrunk(DriftGovernor::kWindow - disagreements, false);
    for (int i = 0; i < disagreements; ++i) governor->Record(false);
  }

  SpecPvConfig config_{.enabled = true, .error_target = 0.125f};  // 32 of a window
  BlockBudget quarter_{.sink = 2, .retrieval = 64, .window = 8};
};

TEST_F(GovernorTest, HalvesAboveTheTargetAndRecoversByOne) {
  DriftGovernor governor(config_, config_.Budget());
  EXPECT_EQ(governor.interval(), 32);
  Window(&governor, 33);
  EXPECT_EQ(governor.interval(), 16);
  Window(&governor, 32);  // at the target is not above it
  EXPECT_EQ(governor.interval(), 17);
  Window(&governor, 256);
  EXPECT_EQ(governor.interval(), 8);
}

TEST_F(GovernorTest, DecidesOncePerWindow) {
  DriftGovernor governor(config_, config_.Budget());
  for (int i = 0; i < DriftGovernor::kWindow - 1; ++i) governor.Record(false);
  EXPECT_EQ(governor.interval(), 32);
  governor.Record(true);
  EXPECT_EQ(governor.interval(), 16);
  governor.Record(false);
  EXPECT_EQ(governor.interval(), 16);
}

TEST_F(GovernorTest, StaysWithinOneAndTheConfiguredInterval) {
  DriftGovernor governor(config_, config_.Budget());
  for (const int expected : {16, 8, 4, 2, 1, 1}) {
    Window(&governor, 100);
    EXPECT_EQ(governor.interval(), expected);
  }
  for (int i = 0; i < 40; ++i) Window(&governor, 0);
  EXPECT_EQ(governor.interval(), 32);
}

TEST_F(GovernorTest, AtIntervalOneMoreBlocksAreRetrieved) {
  DriftGovernor governor(config_, quarter_);
  for (int i = 0; i < 5; ++i) Window(&governor, 100);
  EXPECT_EQ(governor.interval(), 1);
  EXPECT_EQ(governor.budget(), quarter_);
  for (const int expected : {128, 256, 256}) {
    Window(&governor, 100);
    EXPECT_EQ(governor.budget().retrieval, expected);
    EXPECT_EQ(governor.interval(), 1);
  }
  EXPECT_EQ(governor.budget(), config_.Budget());
}

TEST_F(GovernorTest, WithoutATargetNothingMoves) {
  config_.error_target = 0;
  DriftGovernor governor(config_, quarter_);
  for (int i = 0; i < 9; ++i) Window(&governor, 256);
  EXPECT_EQ(governor.interval(), 32);
  EXPECT_EQ(governor.budget(), quarter_);
}

}  // namespace
}  // namespace talon
