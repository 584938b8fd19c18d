#include "serve/grpc/draft_length.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

DraftedRound Round(int length, int accepted, double wait = 0, double target = 0.01) {
  return {
      .path_length = length, .accepted = accepted, .wait_seconds = wait, .target_seconds = target};
}

TEST(DraftLengthControl, StartsAtTheMostAndWaitsForThreeRounds) {
  DraftLengthControl control({.max_length = 5});
  EXPECT_EQ(control.length(), 5);
  control.ObserveDrafted(Round(5, 0));
  control.ObserveDrafted(Round(5, 0));
  EXPECT_EQ(control.length(), 5);
  control.ObserveDrafted(Round(5, 0));
  EXPECT_LT(control.length(), 5);
}

// m = 0.4: e = -0.3, integral -0.3: 5 - 0.6 - 0.15 - 0.03 = 4.22.
TEST(DraftLengthControl, FollowsTheFormula) {
  DraftLengthControl control({.max_length = 5});
  for (int i = 0; i < 3; ++i) control.ObserveDrafted(Round(5, 2));
  EXPECT_NEAR(control.error(), -0.3, 1e-12);
  EXPECT_NEAR(control.integral(), -0.3, 1e-12);
  EXPECT_EQ(control.length(), 4);
  // 4 - 0.6 - 0.3 + 0 = 3.1
  control.ObserveDrafted(Round(5, 2));
  EXPECT_NEAR(control.integral(), -0.6, 1e-12);
  EXPECT_EQ(control.length(), 3);
}

TEST(DraftLengthControl, FullAcceptanceBringsTheLengthBack) {
  DraftLengthControl control({.max_length = 5});
  for (int i = 0; i < 6; ++i) control.ObserveDrafted(Round(5, 1));
  EXPECT_EQ(control.length(), 1);
  for (int i = 0; i < 40; ++i) control.ObserveDrafted(Round(1, 1));
  EXPECT_EQ(control.length(), 5);
  EXPECT_LE(control.integral(), 10);
}

TEST(DraftLengthControl, ThresholdFollowsMeasuredTimes) {
  DraftLengthControl control({});
  EXPECT_EQ(control.threshold(), 0);
  control.ObserveDrafted(Round(5, 5, /*wait=*/0.002, /*target=*/0.01));
  EXPECT_NEAR(control.threshold(), 0.16, 1e-9);
  DraftLengthControl slow({});
  slow.ObserveDrafted(Round(5, 5, /*wait=*/0.1, /*target=*/0.01));
  EXPECT_EQ(slow.threshold(), 0.5);
}

TEST(DraftLengthControl, TwoUselessRoundsOpenTheBreaker) {
  DraftLengthControl control({});
  for (int i = 0; i < 2; ++i) control.ObserveDrafted(Round(5, 0, 0.01, 0.01));
  EXPECT_FALSE(control.open());
  control.ObserveDrafted(Round(5, 0, 0.01, 0.01));
  EXPECT_TRUE(control.open());
  EXPECT_EQ(control.length(), 0);
}

// Half of the path would be below the threshold, but each round still gives twice as much.
TEST(DraftLengthControl, StaysClosedWhereDraftingPays) {
  DraftLengthControl control({});
  for (int i = 0; i < 50; ++i) control.ObserveDrafted(Round(5, 2, 0.005, 0.01));
  EXPECT_FALSE(control.open());
  EXPECT_GT(control.gain(), 1.5);
}

// A far draft worker: acceptance looks fine and the rounds take ten times as long.
TEST(DraftLengthControl, OpensWhereDraftingCostsMoreThanItGives) {
  DraftLengthControl control({});
  control.ObservePlain(0.01);
  for (int i = 0; i < 4; ++i) control.ObserveDrafted(Round(5, 4, 0.1, 0.01));
  EXPECT_TRUE(control.open());
}

// No drafts of this length could make up for the wait.
TEST(DraftLengthControl, OpensAtOnceWhereThereIsNoHope) {
  DraftLengthControl control({});
  control.ObservePlain(0.01);
  control.ObserveDrafted(Round(5, 5, 0.1, 0.01));
  EXPECT_FALSE(control.open()) << "the first may have been an accident";
  control.ObserveDrafted(Round(5, 5, 0.1, 0.01));
  EXPECT_TRUE(control.open());
}

void Open(DraftLengthControl* control) {
  while (!control->open()) control->ObserveDrafted(Round(5, 0, 0.01, 0.01));
}

int RoundsToProbe(DraftLengthControl* control) {
  int rounds = 1;
  for (; !control->wants_probe(); ++rounds) control->ObservePlain(0.01);
  control->ObservePlain(0.01);
  return rounds;
}

TEST(DraftLengthControl, ProbesEveryEighthRoundAndComesBack) {
  DraftLengthControl control({});
  Open(&control);
  EXPECT_EQ(RoundsToProbe(&control), 8);
  control.ObserveProbe(true);
  EXPECT_TRUE(control.open()) << "one right guess is no evidence";
  EXPECT_EQ(RoundsToProbe(&control), 8);
  control.ObserveProbe(true);
  EXPECT_FALSE(control.open());
  EXPECT_EQ(control.length(), 5);
}

TEST(DraftLengthControl, WrongProbesKeepItOpen) {
  DraftLengthControl control({});
  Open(&control);
  for (int i = 0; i < 20; ++i) {
    RoundsToProbe(&control);
    control.ObserveProbe(i % 4 == 0);
    EXPECT_TRUE(control.open());
  }
}

TEST(DraftLengthControl, ComingBackInVainMakesItWaitLonger) {
  DraftLengthControl control({});
  Open(&control);
  for (int i = 0; i < 2; ++i) {
    RoundsToProbe(&control);
    control.ObserveProbe(true);
  }
  ASSERT_FALSE(control.open());
  Open(&control);
  EXPECT_EQ(RoundsToProbe(&control), 16);
}

TEST(DraftLengthControl, NotAdaptiveKeepsItsLength) {
  DraftLengthControl control({.max_length = 7, .adaptive = false});
  for (int i = 0; i < 20; ++i) control.ObserveDrafted(Round(7, 0, 1, 0.01));
  EXPECT_EQ(control.length(), 7);
}

}  // namespace
}  // namespace talon
