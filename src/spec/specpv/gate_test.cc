#include "spec/specpv/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace talon {
namespace {

// A sequence in the middle of its partial steps.
GateState Ready(const SpecPvConfig& config) {
  return {.selected = true,
          .budget = config.Budget(),
          .committed_len = 5005,
          .provisional_tokens = 5,
          .partial_steps = 1,
          .tree_nodes = 60};
}

// "partial", "full", or the reason of a refresh.
std::string Decision(const SpecPvConfig& config, const GateState& state) {
  const GateDecision decision = DecideVerification(config, state);
  EXPECT_FALSE(decision.partial && (decision.reason || decision.select));
  if (decision.partial) return "partial";
  return decision.reason ? RefreshReasonName(*decision.reason) : "full";
}

class GateTest : public testing::Test {
 protected:
  std::string Decide() { return Decision(config_, state_); }

  SpecPvConfig config_{.enabled = true};
  GateState state_ = Ready(config_);
};

TEST_F(GateTest, PartialIfNothingSpeaksAgainstIt) { EXPECT_EQ(Decide(), "partial"); }

TEST_F(GateTest, OffMeansFull) {
  state_.provisional_tokens = 0;
  config_.enabled = false;
  EXPECT_EQ(Decide(), "full");
  config_.enabled = true;
  state_.supported = false;
  EXPECT_EQ(Decide(), "full");
}

TEST_F(GateTest, FallbackReplaysItsTailFirst) {
  state_.supported = false;
  EXPECT_EQ(Decide(), "request");
  EXPECT_FALSE(DecideVerification(config_, state_).select);
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "full");
}

TEST_F(GateTest, WhatDoesNotPayIsFull) {
  state_.pays = false;
  EXPECT_EQ(Decide(), "request");  // its tail first
  EXPECT_FALSE(DecideVerification(config_, state_).select);
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "full");
}

TEST_F(GateTest, InitOnTheFirstStepPastTheThreshold) {
  state_.selected = false;
  state_.provisional_tokens = 0;
  state_.partial_steps = 0;
  EXPECT_EQ(Decide(), "init");
  EXPECT_TRUE(DecideVerification(config_, state_).select);
}

TEST_F(GateTest, ShortSequencesAreFullWithoutAReason) {
  config_.partial_threshold = 5005;
  state_.selected = false;
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "full");
  EXPECT_FALSE(DecideVerification(config_, state_).select);
  state_.committed_len = 5006;
  EXPECT_EQ(Decide(), "init");
}

// The default threshold, 4096, is below the static size, 4256: at least one block must be omitted.
TEST_F(GateTest, SomethingMustBeOmitted) {
  state_.selected = false;
  state_.provisional_tokens = 0;
  for (const int length : {4097, 4256, 4257, 4256 + 15}) {
    state_.committed_len = length;
    EXPECT_EQ(Decide(), "full") << length;
  }
  state_.committed_len = 4256 + 16;
  EXPECT_EQ(Decide(), "init");
}

TEST_F(GateTest, CapacityCountsTailAndTree) {
  state_.provisional_tokens = 68;
  EXPECT_EQ(Decide(), "partial");  // 68 + 60 == 128
  state_.provisional_tokens = 69;
  EXPECT_EQ(Decide(), "capacity");
  state_.tree_nodes = 59;
  EXPECT_EQ(Decide(), "partial");
}

// Seed 000 compares with `>`, which makes 33 steps of 32.
TEST_F(GateTest, IntervalIsTheNumberOfPartialSteps) {
  state_.partial_steps = 31;
  EXPECT_EQ(Decide(), "partial");
  state_.partial_steps = 32;
  EXPECT_EQ(Decide(), "interval");
}

TEST_F(GateTest, FinishInExactModeOnly) {
  state_.finish_pending = true;
  EXPECT_EQ(Decide(), "finish");
  config_.mode = SpecPvMode::kFast;
  EXPECT_EQ(Decide(), "partial");
  config_.mode = SpecPvMode::kExact;
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "partial");
}

TEST_F(GateTest, DriftBelowTheConfiguredInterval) {
  state_.interval = 4;
  state_.partial_steps = 3;
  EXPECT_EQ(Decide(), "partial");
  state_.partial_steps = 4;
  EXPECT_EQ(Decide(), "drift");
  state_.interval = 32;
  EXPECT_EQ(Decide(), "partial");
}

TEST_F(GateTest, RequestInBothModes) {
  state_.settle_requested = true;
  EXPECT_EQ(Decide(), "request");
  config_.mode = SpecPvMode::kFast;
  EXPECT_EQ(Decide(), "request");
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "request");
}

TEST_F(GateTest, FirstTriggerNamesTheReason) {
  state_.settle_requested = true;
  state_.interval = 1;
  EXPECT_EQ(Decide(), "drift");
  state_.finish_pending = true;
  EXPECT_EQ(Decide(), "finish");
  state_.partial_steps = 32;
  EXPECT_EQ(Decide(), "interval");
  state_.provisional_tokens = 100;
  EXPECT_EQ(Decide(), "capacity");
  state_.selected = false;
  EXPECT_EQ(Decide(), "init");
  EXPECT_TRUE(DecideVerification(config_, state_).select);
}

TEST_F(GateTest, SelectorsWithoutRetrievalNeedLess) {
  config_.partial_threshold = 0;
  config_.selector = SpecPvSelector::kSliding;
  state_.budget = config_.Budget();
  state_.committed_len = 9 * 16;
  EXPECT_EQ(Decide(), "partial");
  state_.committed_len = 9 * 16 - 1;
  state_.provisional_tokens = 0;
  EXPECT_EQ(Decide(), "full");
}

// One sequence as the step would drive it, the model being a function of nothing.
struct Simulation {
  SpecPvConfig config;
  GateState state;
  int rows = 0;  // rows of the last step

  // Verifies `nodes` nodes and accepts `drafts` of them; a full pass confirms the whole trunk, or
  // only the first `trunk_kept` tokens of it if that is not negative.
  std::string Step(int nodes, int drafts, int trunk_kept = -1) {
    state.tree_nodes = nodes;
    const GateDecision decision = DecideVerification(config, state);
    rows = nodes + (decision.partial ? 0 : state.provisional_tokens);
    if (decision.partial) {
      state.provisional_tokens += drafts + 1;
      ++state.partial_steps;
      return "partial";
    }
    const bool rolled_back = trunk_kept >= 0;
    state.committed_len += rolled_back ? trunk_kept : state.provisional_tokens + drafts + 1;
    state.provisional_tokens = 0;
    state.partial_steps = 0;
    if (decision.select) state.selected = true;
    return decision.reason ? RefreshReasonName(*decision.reason) : "full";
  }
};

class TimelineTest : public testing::Test {
 protected:
  // Steps 0 to 14 of the timeline.
  void RunToStep15() {
    EXPECT_EQ(run_.Step(60, 4), "init");
    EXPECT_EQ(run_.rows, 60);
    EXPECT_EQ(run_.state.committed_len, 5005);
    for (int step = 1; step <= 14; ++step) {
      EXPECT_EQ(run_.state.provisional_tokens, 5 * (step - 1));
      ASSERT_EQ(run_.Step(60, 4), "partial") << step;
      EXPECT_EQ(run_.rows, 60);
      EXPECT_EQ(run_.state.committed_len, 5005);
    }
    EXPECT_EQ(run_.state.provisional_tokens, 70);
  }

  Simulation run_{.config = {.enabled = true},
                  .state = {.budget = SpecPvConfig().Budget(), .committed_len = 5000}};
};

TEST_F(TimelineTest, Confirmed) {
  RunToStep15();
  EXPECT_EQ(run_.Step(60, 4), "capacity");
  EXPECT_EQ(run_.rows, 130);
  EXPECT_EQ(run_.state.committed_len, 5080);
  EXPECT_EQ(run_.state.provisional_tokens, 0);
  EXPECT_EQ(run_.Step(60, 4), "partial");
}

TEST_F(TimelineTest, RolledBack) {
  RunToStep15();
  EXPECT_EQ(run_.Step(60, 0, /*trunk_kept=*/37), "capacity");
  EXPECT_EQ(run_.rows, 130);
  EXPECT_EQ(run_.state.committed_len, 5042);
  EXPECT_EQ(run_.state.provisional_tokens, 0);
  EXPECT_EQ(run_.Step(60, 4), "partial");
}

TEST_F(TimelineTest, PlainDecodingRefreshesByInterval) {
  EXPECT_EQ(run_.Step(1, 0), "init");
  for (int step = 0; step < 32; ++step) ASSERT_EQ(run_.Step(1, 0), "partial");
  EXPECT_EQ(run_.Step(1, 0), "interval");
  EXPECT_EQ(run_.rows, 33);
}

// Growing through the threshold: full passes without a reason, one init, then partial.
TEST_F(TimelineTest, CrossingTheThreshold) {
  run_.state.committed_len = 4200;
  std::vector<std::string> seen;
  for (int step = 0; step < 40; ++step) {
    const std::string what = run_.Step(60, 4);
    if (seen.empty() || seen.back() != what) seen.push_back(what);
  }
  ASSERT_GE(seen.size(), 4u);
  seen.resize(4);
  EXPECT_EQ(seen, (std::vector<std::string>{"full", "init", "partial", "capacity"}));
}

// A full pass never needs more staging rows than buffer + depth + 1, nor the tail more than the
// buffer, if trees are cut to the room there is.
TEST_F(TimelineTest, RowsAreBounded) {
  constexpr int kDepth = 8;
  std::mt19937 random(5);
  int most_rows = 0, most_provisional = 0;
  for (int step = 0; step < 20000; ++step) {
    const int room = TreeRoom(run_.config, run_.state.provisional_tokens, kDepth);
    ASSERT_GT(room, kDepth);
    const int wanted = random() % 4 == 0 ? 119 : 1 + static_cast<int>(random() % 20);
    const int nodes = std::min(room, wanted);
    run_.Step(nodes, static_cast<int>(random() % (std::min(kDepth, nodes - 1) + 1)));
    most_rows = std::max(most_rows, run_.rows);
    most_provisional = std::max(most_provisional, run_.state.provisional_tokens);
  }
  EXPECT_EQ(most_rows, 128 + kDepth + 1);
  EXPECT_LE(most_provisional, 128);
  EXPECT_GT(most_provisional, 100);
}

}  // namespace
}  // namespace talon
