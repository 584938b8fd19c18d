#include "remote/draft_length.h"

#include <gtest/gtest.h>

#include <vector>

namespace talon {
namespace {

DraftedRound Round(int length, int accepted, double wait = 0, double target = 0.01) {
  return {
      .path_length = length, .accepted = accepted, .wait_seconds = wait, .target_seconds = target};
}

// A plain round, then a correct guess of a fast probe: the breaker closes.
DraftLengthControl Closed(int max_length = 5) {
  DraftLengthControl control({.max_length = max_length});
  control.ObservePlain(0.01);
  control.ObserveProbe(0.002);
  control.ObserveGuess(true);
  EXPECT_FALSE(control.open());
  return control;
}

void Open(DraftLengthControl* control) {
  while (!control->open()) control->ObserveDrafted(Round(5, 0, 0.01, 0.01));
}

// The number of plain rounds up to the next probe, including its own.
int RoundsToProbe(DraftLengthControl* control) {
  int rounds = 1;
  for (; !control->wants_probe(); ++rounds) control->ObservePlain(0.01);
  control->ObservePlain(0.01);
  return rounds;
}

void Probe(DraftLengthControl* control, bool right, double seconds = 0.002) {
  control->ObserveProbe(seconds);
  control->ObserveGuess(right);
}

TEST(DraftLengthControl, BeginsWithProbesOnly) {
  DraftLengthControl control({.max_length = 5});
  EXPECT_TRUE(control.open());
  EXPECT_EQ(control.length(), 0);
  EXPECT_TRUE(control.wants_probe());
  control.ObserveProbe(0.002);
  control.ObserveGuess(true);
  EXPECT_TRUE(control.open()) << "what a plain round takes is not known yet";
  control.ObservePlain(0.01);
  EXPECT_FALSE(control.open());
  EXPECT_EQ(control.length(), 5);
}

TEST(DraftLengthControl, RoundsNeverWaitForDraftsThatAreAlwaysWrong) {
  DraftLengthControl control({});
  std::vector<int> intervals;
  for (int i = 0; i < 6; ++i) {
    intervals.push_back(RoundsToProbe(&control));
    Probe(&control, false);
    EXPECT_TRUE(control.open());
  }
  EXPECT_EQ(intervals, (std::vector<int>{1, 2, 4, 8, 8, 8}));
}

// At best six tokens for a wait of ten plain rounds.
TEST(DraftLengthControl, RoundsNeverWaitForDraftsThatTakeTooLong) {
  DraftLengthControl control({});
  for (int i = 0; i < 20; ++i) {
    RoundsToProbe(&control);
    Probe(&control, true, /*seconds=*/0.1);
    EXPECT_TRUE(control.open());
  }
}

// The more expensive the drafts, the more correct guesses are required.
TEST(DraftLengthControl, OneGuessIsEnoughWhereDraftsAreCheap) {
  DraftLengthControl control({});
  control.ObservePlain(0.01);
  control.ObserveProbe(0.015);
  control.ObserveGuess(true);
  EXPECT_TRUE(control.open());
  for (int i = 0; i < 4; ++i) control.ObserveGuess(true);
  EXPECT_FALSE(control.open());
}

TEST(DraftLengthControl, StartsAtMaxLengthAndAdaptsAfterThreeRounds) {
  DraftLengthControl control = Closed();
  EXPECT_EQ(control.length(), 5);
  control.ObserveDrafted(Round(5, 1));
  control.ObserveDrafted(Round(5, 1));
  EXPECT_EQ(control.length(), 5);
  control.ObserveDrafted(Round(5, 1));
  EXPECT_LT(control.length(), 5);
}

// m = 0.4: e = -0.3, integral -0.3: 5 - 0.6 - 0.15 - 0.03 = 4.22.
TEST(DraftLengthControl, FollowsTheFormula) {
  DraftLengthControl control = Closed();
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
  DraftLengthControl control = Closed();
  for (int i = 0; i < 6; ++i) control.ObserveDrafted(Round(5, 1));
  EXPECT_EQ(control.length(), 1);
  for (int i = 0; i < 40; ++i) control.ObserveDrafted(Round(1, 1));
  EXPECT_EQ(control.length(), 5);
  EXPECT_LE(control.integral(), 10);
}

TEST(DraftLengthControl, ThresholdFollowsMeasuredTimes) {
  DraftLengthControl control({});
  EXPECT_EQ(control.threshold(), 0);
  control.ObservePlain(0.01);
  control.ObserveProbe(0.002);
  EXPECT_NEAR(control.threshold(), 0.16, 1e-9) << "by what a probe took";
  control.ObserveDrafted(Round(5, 5, /*wait=*/0.004, /*target=*/0.01));
  EXPECT_NEAR(control.threshold(), 0.32, 1e-9) << "by what drafts took";
  control.ObserveDrafted(Round(5, 5, /*wait=*/0.1, /*target=*/0.01));
  EXPECT_NEAR(control.threshold(), 0.32, 1e-9) << "one long wait may be an outlier";
  control.ObserveDrafted(Round(5, 5, /*wait=*/0.1, /*target=*/0.01));
  EXPECT_EQ(control.threshold(), 0.5);
}

// Five plain rounds, whether by wrong drafts or by slow ones.
TEST(DraftLengthControl, OpensAfterALossOfFivePlainRounds) {
  DraftLengthControl useless = Closed();
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(useless.loss(), i, 1e-9);
    EXPECT_FALSE(useless.open());
    useless.ObserveDrafted(Round(5, 0, 0.01, 0.01));
  }
  EXPECT_TRUE(useless.open());
  EXPECT_EQ(useless.length(), 0);
  DraftLengthControl slow = Closed();  // three tokens for three and a half plain rounds
  int rounds = 0;
  for (; !slow.open(); ++rounds) slow.ObserveDrafted(Round(5, 2, 0.015, 0.02));
  EXPECT_EQ(rounds, 10);
}

// Less than half of the path is accepted, but each round still gives twice as much.
TEST(DraftLengthControl, StaysClosedWhereDraftingPays) {
  DraftLengthControl control = Closed();
  for (int i = 0; i < 50; ++i) control.ObserveDrafted(Round(5, 2, 0.005, 0.01));
  EXPECT_FALSE(control.open());
  EXPECT_EQ(control.loss(), 0);
}

TEST(DraftLengthControl, OneSlowRoundDoesNotOpenTheBreaker) {
  DraftLengthControl control = Closed();
  for (int i = 0; i < 50; ++i) {
    control.ObserveDrafted(Round(5, 2, 0, i % 5 == 0 ? 0.25 : 0.01));
    ASSERT_FALSE(control.open());
  }
  DraftLengthControl begun({});  // its first round is slow
  begun.ObservePlain(0.25);
  Probe(&begun, true);
  ASSERT_FALSE(begun.open());
  for (int i = 0; i < 5; ++i) begun.ObserveDrafted(Round(5, 0, 0.01, 0.01));
  EXPECT_TRUE(begun.open());
}

// The plain rounds that follow a success do not count as failures of the drafter.
TEST(DraftLengthControl, ClosesWhenProbesAreCorrectAgain) {
  DraftLengthControl control = Closed();
  for (int i = 0; i < 40; ++i) control.ObserveDrafted(Round(5, 5, 0, 0.01));
  Open(&control);
  EXPECT_EQ(RoundsToProbe(&control), 8);
  Probe(&control, false);
  EXPECT_TRUE(control.open());
  for (int i = 0; i < 5 && control.open(); ++i) {
    EXPECT_EQ(RoundsToProbe(&control), 8);
    Probe(&control, true);
  }
  EXPECT_FALSE(control.open());
  EXPECT_EQ(control.length(), 5);
}

TEST(DraftLengthControl, AnUnsuccessfulCloseMakesProbesRarerAndOpensSooner) {
  DraftLengthControl control = Closed();
  Open(&control);
  EXPECT_EQ(RoundsToProbe(&control), 16);
  for (int i = 0; i < 8; ++i) Probe(&control, true);
  ASSERT_FALSE(control.open());
  for (int i = 0; i < 3; ++i) control.ObserveDrafted(Round(5, 0, 0.01, 0.01));
  ASSERT_TRUE(control.open());
  EXPECT_EQ(RoundsToProbe(&control), 32);
}

// A worker that was slow once is tried again after a while.
TEST(DraftLengthControl, OldTimesFade) {
  DraftLengthControl control = Closed();
  while (!control.open()) control.ObserveDrafted(Round(5, 0, 0.1, 0.01));
  int probes = 0;
  for (; control.open() && probes < 1000; ++probes) {
    RoundsToProbe(&control);
    Probe(&control, true);
  }
  EXPECT_GT(probes, 10);
  EXPECT_LT(probes, 100);
}

// Rounds without an accepted token, until their small waits are too much of a loss, leave a mean of
// 1 token. Each probe moves it by 5 % towards the 2 tokens of a round at its best; drafts pay again
// from 1.25 * 1.04 plain rounds on: 2 - 0.95^7 = 1.302.
TEST(DraftLengthControl, TokensOfFruitlessRoundsFadeWithEachProbe) {
  DraftLengthControl control = Closed(/*max_length=*/1);
  while (!control.open()) control.ObserveDrafted(Round(1, 0, /*wait=*/0.0004, /*target=*/0.01));
  int probes = 0;
  for (; control.open() && probes < 100; ++probes) Probe(&control, true, /*seconds=*/0.0004);
  EXPECT_EQ(probes, 7);
}

// Plain rounds until probes, all of them quick and right, close the breaker.
int RoundsToClose(DraftLengthControl* control) {
  int rounds = 0;
  while (control->open() && rounds < 5000) {
    rounds += RoundsToProbe(control);
    Probe(control, true);
  }
  return rounds;
}

// The first call sets up the connection. Its time used to count for 150 rounds.
TEST(DraftLengthControl, ASlowFirstProbeLosesItsWeight) {
  DraftLengthControl control({});
  control.ObservePlain(0.01);
  Probe(&control, true, /*seconds=*/2);
  ASSERT_TRUE(control.open());
  EXPECT_LE(RoundsToClose(&control), 2);
}

// One round with a long wait or a slow verification, then a run of wrong drafts: drafting used to
// stay off for hundreds of rounds, although drafts were correct again.
TEST(DraftLengthControl, ASlowRoundLosesItsWeight) {
  const auto rounds_to_close = [](int good_rounds, const DraftedRound& last) {
    DraftLengthControl control = Closed();
    for (int i = 0; i < good_rounds; ++i) control.ObserveDrafted(Round(5, 5, 0.002, 0.01));
    control.ObserveDrafted(last);
    EXPECT_FALSE(control.open());
    Open(&control);
    return RoundsToClose(&control);
  };
  for (const int good_rounds : {0, 40}) {
    const int usual = rounds_to_close(good_rounds, Round(5, 5, 0.002, 0.01));
    EXPECT_LE(rounds_to_close(good_rounds, Round(5, 5, 2, 0.01)), usual) << good_rounds;
    EXPECT_LE(rounds_to_close(good_rounds, Round(5, 5, 0.002, 2)), usual) << good_rounds;
  }
}

TEST(DraftLengthControl, WithoutAdaptationTheLengthIsFixed) {
  DraftLengthControl control({.max_length = 7, .adaptive = false});
  for (int i = 0; i < 20; ++i) control.ObserveDrafted(Round(7, 0, 1, 0.01));
  EXPECT_EQ(control.length(), 7);
}

}  // namespace
}  // namespace talon
