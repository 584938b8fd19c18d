#include <gtest/gtest.h>

#include "apps/bench/modelled/modelled_clock.h"
#include "apps/bench/modelled/pass_costs.h"
#include "base/file.h"

namespace talon {
namespace {

constexpr const char* kCosts = R"({
  "target": {"points": [{"rows": 1, "base": 1, "per_token": 0.01},
                        {"rows": 3, "base": 2, "per_token": 0.03}],
             "view_key": 2, "scored_key": 0.001},
  "draft": {"points": [{"rows": 1, "base": 0.1, "per_token": 0}], "stored_row": 0.004}
})";

MachineCosts Load(const std::string& text) {
  const std::string path = testing::TempDir() + "/talon_costs.json";
  EXPECT_TRUE(WriteFile(path, text).ok());
  auto costs = MachineCosts::Load(path);
  EXPECT_TRUE(costs.ok()) << costs.status().message();
  return costs.ok() ? *costs : MachineCosts{};
}

// Sequences of `rows` rows over so long prefixes; all rows have outputs.
PassPlan Plan(const std::vector<int>& rows, const std::vector<int>& prefixes) {
  PassPlan plan;
  plan.sequence_rows = {0};
  plan.block_offsets = {0};
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int row = 0; row < rows[i]; ++row) {
      plan.output_rows.push_back(static_cast<int32_t>(plan.tokens.size()));
      plan.tokens.push_back(0);
      plan.prefix_len.push_back(prefixes[i]);
    }
    plan.sequence_rows.push_back(static_cast<int32_t>(plan.tokens.size()));
    plan.block_offsets.push_back(0);
  }
  return plan;
}

TEST(PassCosts, RowsTogetherAndKeysOfEachSequence) {
  const MachineCosts costs = Load(kCosts);
  EXPECT_DOUBLE_EQ(costs.target.Seconds(Plan({1}, {100}), 16), 1 + 1);
  EXPECT_DOUBLE_EQ(costs.target.Seconds(Plan({2}, {100}), 16), 1.5 + 2);
  EXPECT_DOUBLE_EQ(costs.target.Seconds(Plan({1, 2}, {100, 50}), 16), 2 + 1 + 1);
}

TEST(PassCosts, PartialViewsScoresAndStoredRows) {
  const MachineCosts costs = Load(kCosts);
  PassPlan plan = Plan({1}, {100});
  plan.scores.push_back({.row_begin = 0, .row_end = 1, .num_blocks = 5});
  EXPECT_DOUBLE_EQ(costs.target.Seconds(plan, 16), 2 + 5 * 16 * 0.001);
  plan = Plan({1}, {100});
  plan.sequence_lists = {0, 2};
  EXPECT_DOUBLE_EQ(costs.target.Seconds(plan, 16), 1 + 2 * 1);
  plan = Plan({3}, {100});
  plan.output_rows.resize(1);
  EXPECT_DOUBLE_EQ(costs.draft.Seconds(plan, 16), 3 * 0.004);
}

TEST(PassCosts, BadFilesAreRefused) {
  const std::string path = testing::TempDir() + "/talon_bad_costs.json";
  for (const char* bad : {"{}", "[]", R"({"target": {"points": []}})"}) {
    ASSERT_TRUE(WriteFile(path, bad).ok());
    EXPECT_FALSE(MachineCosts::Load(path).ok()) << bad;
  }
}

TEST(ModelledClock, NoiseIsTheSeeds) {
  ModelledClock quiet(0), noisy(1), same(1), other(2);
  for (int i = 0; i < 1000; ++i) {
    for (ModelledClock* clock : {&quiet, &noisy, &same, &other}) clock->Advance(0.01);
  }
  EXPECT_NEAR(quiet.Seconds(), 10, 1e-9);
  EXPECT_NEAR(noisy.undisturbed().Seconds(), 10, 1e-9);
  EXPECT_GT(noisy.Seconds(), 10.5);
  EXPECT_EQ(noisy.Seconds(), same.Seconds());
  EXPECT_NE(noisy.Seconds(), other.Seconds());
}

}  // namespace
}  // namespace talon
