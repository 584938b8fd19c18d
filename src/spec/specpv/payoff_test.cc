#include "spec/specpv/payoff.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace talon {
namespace {

// Plain steps over a long prefix: partial ones take half, and a replayed token a seventh.
constexpr StepCosts kLong = {.full_step = 2,
                             .partial_step = 1,
                             .tokens_per_step = 1,
                             .replay_pass = 2,
                             .replay_row = 0.3,
                             .trunk = 32};

class PayoffTest : public testing::Test {
 protected:
  void TimeFullPasses() {
    for (size_t i = 0; i < PartialPayoff::kFullPasses; ++i) payoff_.RecordPass(PassKind::kFull, 1);
  }

  // A round of partial passes and a settling one, which disagrees after so many tokens.
  void Round(int agreeing) {
    const int trunk = std::min(payoff_.MaxTrunk(costs_), costs_.trunk);
    payoff_.RecordPass(PassKind::kPartial, partial_ratio_);
    payoff_.RecordPass(PassKind::kSettling, 1);
    const bool disagreed = agreeing < trunk;
    payoff_.RecordTrunk(std::min(agreeing, trunk), disagreed);
    if (disagreed) trying_ = false;
  }

  // The share of decisions that were for partial passes; all of them agree with so many tokens.
  double ShareOfRounds(int decisions, int agreeing) {
    int rounds = 0;
    for (int i = 0; i < decisions; ++i) {
      if (payoff_.Decide(costs_, &trying_)) {
        ++rounds;
        Round(agreeing);
      } else {
        payoff_.RecordPass(PassKind::kFull, 1);
      }
    }
    return static_cast<double>(rounds) / decisions;
  }

  PartialPayoff payoff_;
  StepCosts costs_ = kLong;
  double partial_ratio_ = 1;
  bool trying_ = false;
};

TEST_F(PayoffTest, UnknownCostsAreAsConfigured) {
  for (int i = 0; i < 50; ++i) payoff_.RecordTrunk(0, true);
  EXPECT_TRUE(payoff_.Decide({}, &trying_));
  EXPECT_FALSE(trying_);
}

TEST_F(PayoffTest, FullPassesAreTimedFirst) {
  for (size_t i = 0; i < PartialPayoff::kFullPasses; ++i) {
    EXPECT_FALSE(payoff_.Decide(costs_, &trying_));
    payoff_.RecordPass(PassKind::kFull, 1);
  }
  EXPECT_TRUE(payoff_.Decide(costs_, &trying_));
}

TEST_F(PayoffTest, AgreementKeepsThemOn) {
  TimeFullPasses();
  EXPECT_EQ(ShareOfRounds(500, /*agreeing=*/100), 1);
}

TEST_F(PayoffTest, DisagreementTurnsThemOff) {
  TimeFullPasses();
  int rounds = 0;
  for (; payoff_.Decide(costs_, &trying_); ++rounds) {
    ASSERT_LT(rounds, 10);
    Round(/*agreeing=*/1);
  }
  EXPECT_GE(rounds, 1);
  EXPECT_FALSE(trying_);
}

// Where a partial pass is cheap, only what was thrown away tells that it does not pay.
TEST_F(PayoffTest, AViewThatNeverAgreesCostsFewTokens) {
  costs_ = {.full_step = 8.5,
            .partial_step = 2,
            .tokens_per_step = 1,
            .replay_pass = 8,
            .replay_row = 0.45,
            .trunk = 32};
  TimeFullPasses();
  int thrown_away = 0;
  while (payoff_.Decide(costs_, &trying_)) {
    thrown_away += std::min(payoff_.MaxTrunk(costs_), costs_.trunk);
    ASSERT_LE(thrown_away, 64);
    Round(/*agreeing=*/0);
  }
}

TEST_F(PayoffTest, TrunksGrowWithWhatWasChecked) {
  TimeFullPasses();
  EXPECT_LE(payoff_.MaxTrunk(costs_), 8);
  for (int i = 0; i < 6; ++i) Round(/*agreeing=*/100);
  EXPECT_GE(payoff_.MaxTrunk(costs_), 32);
}

TEST_F(PayoffTest, TheyAreTriedAgainMoreAndMoreRarely) {
  TimeFullPasses();
  ShareOfRounds(100, /*agreeing=*/1);
  const double at_first = ShareOfRounds(1000, /*agreeing=*/1);
  EXPECT_GT(at_first, 0);
  EXPECT_LT(at_first, 0.006);
  ShareOfRounds(4000, /*agreeing=*/1);
  const double later = ShareOfRounds(20000, /*agreeing=*/1);
  EXPECT_GT(later, 0);
  EXPECT_LT(later, 0.0015);
}

TEST_F(PayoffTest, AnotherTextTurnsThemOnAgain) {
  TimeFullPasses();
  ShareOfRounds(3000, /*agreeing=*/1);
  ShareOfRounds(PartialPayoff::kLastTrial, /*agreeing=*/100);
  EXPECT_EQ(ShareOfRounds(100, /*agreeing=*/100), 1);
}

// The curve flatters partial passes, or something slows them down.
TEST_F(PayoffTest, PassesSlowerThanTheCurveSaysTurnThemOff) {
  TimeFullPasses();
  partial_ratio_ = 3;
  EXPECT_LT(ShareOfRounds(1000, /*agreeing=*/100), 0.05);
  partial_ratio_ = 1;
  ShareOfRounds(PartialPayoff::kLastTrial, /*agreeing=*/100);
  EXPECT_EQ(ShareOfRounds(100, /*agreeing=*/100), 1);  // not for ever
}

// The forecast says yes for ever; the clock has the last word, here and in later trials.
TEST_F(PayoffTest, RoundsThatLoseByTheClockTurnThemOff) {
  TimeFullPasses();
  for (int i = 0; i < 3; ++i) payoff_.RecordFullStep(/*time=*/2, /*tokens=*/1, false);
  const auto share_of_rounds = [this](int decisions, double seconds_of_token) {
    int rounds = 0;
    for (int i = 0; i < decisions; ++i) {
      if (!payoff_.Decide(costs_, &trying_)) continue;
      ++rounds;
      Round(/*agreeing=*/100);
      payoff_.RecordRound(10 * seconds_of_token, 10);
    }
    return static_cast<double>(rounds) / decisions;
  };
  EXPECT_EQ(share_of_rounds(100, 1.9), 1);
  EXPECT_LT(share_of_rounds(1000, 2.4), 0.05);
  share_of_rounds(PartialPayoff::kLastTrial, 1.5);
  EXPECT_EQ(share_of_rounds(100, 1.5), 1);
}

// Drafting that does not pay, while the policy finds that out, must not flatter the rounds.
TEST_F(PayoffTest, RoundsAreComparedWithTheBetterKindOfFullSteps) {
  for (const bool drafted : {false, true}) {
    PartialPayoff payoff;
    for (size_t i = 0; i < PartialPayoff::kFullPasses; ++i) payoff.RecordPass(PassKind::kFull, 1);
    payoff.RecordFullStep(2, 1, drafted);
    payoff.RecordFullStep(3, 1, !drafted);
    for (int i = 0; i < PartialPayoff::kFewRounds; ++i) payoff.RecordRound(25, 10);
    EXPECT_FALSE(payoff.Decide(costs_, &trying_)) << drafted;
  }
}

// A trial of rounds that have lost before ends after the first that loses again.
TEST_F(PayoffTest, ATrialThatLosesIsShort) {
  TimeFullPasses();
  payoff_.RecordFullStep(2, 1, false);
  const auto rounds_in = [this](int decisions) {
    int rounds = 0;
    for (int i = 0; i < decisions; ++i) {
      if (!payoff_.Decide(costs_, &trying_)) continue;
      ++rounds;
      Round(/*agreeing=*/100);
      payoff_.RecordRound(24, 10);
    }
    return rounds;
  };
  EXPECT_EQ(rounds_in(PartialPayoff::kFewRounds + 10), PartialPayoff::kFewRounds);
  EXPECT_EQ(rounds_in(PartialPayoff::kFirstTrial), 1);
}

TEST_F(PayoffTest, FewRoundsProveNothing) {
  TimeFullPasses();
  payoff_.RecordFullStep(2, 1, false);
  for (int i = 0; i < PartialPayoff::kFewRounds; ++i) {
    EXPECT_TRUE(payoff_.Decide(costs_, &trying_)) << i;
    payoff_.RecordRound(100, 1);
  }
  EXPECT_FALSE(payoff_.Decide(costs_, &trying_));
}

TEST_F(PayoffTest, AShortPrefixIsNotWorthATrial) {
  TimeFullPasses();
  costs_.full_step = 1.2;
  EXPECT_EQ(ShareOfRounds(3000, /*agreeing=*/100), 0);
}

}  // namespace
}  // namespace talon
