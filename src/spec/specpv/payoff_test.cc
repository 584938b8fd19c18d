#include "spec/specpv/payoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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
    for (size_t i = 0; i < PartialPayoff::kFullPasses; ++i) {
      payoff_.RecordPass(PassKind::kFull, 1);
      payoff_.RecordFullStep(/*time=*/1, /*tokens=*/1, false);
    }
  }

  // A round of partial passes and a settling one, which disagrees after so many tokens. It takes
  // what its passes do, or `token_time` for each token.
  void Round(int agreeing, double token_time = 0) {
    const int trunk = std::min(payoff_.MaxTrunk(costs_), costs_.trunk);
    payoff_.RecordPass(PassKind::kPartial, partial_ratio_);
    payoff_.RecordPass(PassKind::kSettling, 1);
    const bool disagreed = agreeing < trunk;
    const int confirmed = std::min(agreeing, trunk);
    payoff_.RecordTrunk(confirmed, disagreed);
    const double seconds =
        trunk * (partial_ratio_ * costs_.partial_step + costs_.replay_row) + costs_.replay_pass;
    const double time = token_time > 0 ? token_time * (confirmed + 1) : seconds / costs_.full_step;
    payoff_.RecordRound(time, confirmed + 1);
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
    ASSERT_LE(thrown_away, 12);
    Round(/*agreeing=*/0);
  }
}

TEST_F(PayoffTest, TrunksGrowWithWhatTheySave) {
  TimeFullPasses();
  EXPECT_LE(payoff_.MaxTrunk(costs_), 4);
  for (int i = 0; i < 10; ++i) Round(/*agreeing=*/100);
  EXPECT_GE(payoff_.MaxTrunk(costs_), 32);
}

// Rounds that agree for a while and then no longer: what they lose at last, they had won before,
// but for a little.
TEST_F(PayoffTest, ATextThatChangesTakesBackWhatWasSaved) {
  for (int agreeing_rounds = 0; agreeing_rounds < 12; ++agreeing_rounds) {
    payoff_ = {};
    trying_ = false;
    TimeFullPasses();
    double gained = 0;  // plain steps
    for (int i = 0; i < 60; ++i) {
      if (!payoff_.Decide(costs_, &trying_)) continue;
      const int trunk = std::min(payoff_.MaxTrunk(costs_), costs_.trunk);
      const int agreeing = i < agreeing_rounds ? trunk : 0;
      Round(agreeing);
      gained += agreeing + 1 -
                (trunk * (costs_.partial_step + costs_.replay_row) + costs_.replay_pass) /
                    costs_.full_step;
    }
    EXPECT_GE(gained, -3) << agreeing_rounds;
  }
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
  const auto share_of_rounds = [this](int decisions, double token_time) {
    int rounds = 0;
    for (int i = 0; i < decisions; ++i) {
      if (!payoff_.Decide(costs_, &trying_)) continue;
      ++rounds;
      Round(/*agreeing=*/100, token_time);
    }
    return static_cast<double>(rounds) / decisions;
  };
  EXPECT_EQ(share_of_rounds(100, 0.95), 1);
  EXPECT_LT(share_of_rounds(1000, 1.2), 0.05);
  share_of_rounds(PartialPayoff::kLastTrial, 0.75);
  EXPECT_EQ(share_of_rounds(100, 0.75), 1);
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
  const auto rounds_in = [this](int decisions) {
    int rounds = 0;
    for (int i = 0; i < decisions; ++i) {
      if (!payoff_.Decide(costs_, &trying_)) continue;
      ++rounds;
      Round(/*agreeing=*/100, /*token_time=*/1.05);
    }
    return rounds;
  };
  EXPECT_EQ(rounds_in(PartialPayoff::kFewRounds + 10), PartialPayoff::kFewRounds);
  EXPECT_EQ(rounds_in(PartialPayoff::kFirstTrial), 1);
}

TEST_F(PayoffTest, SmallLossesOfFewRoundsProveNothing) {
  TimeFullPasses();
  for (int i = 0; i < PartialPayoff::kFewRounds; ++i) {
    EXPECT_TRUE(payoff_.Decide(costs_, &trying_)) << i;
    payoff_.RecordRound(/*time=*/2.2, /*tokens=*/2);
  }
  EXPECT_FALSE(payoff_.Decide(costs_, &trying_));
}

// The curve was measured on an idle machine: what all passes take longer says nothing of them.
TEST_F(PayoffTest, PassesThatAreAllSlowerChangeNothing) {
  std::vector<int> trunks;
  for (const double slower : {1.0, 3.0}) {
    payoff_ = {};
    for (size_t i = 0; i < PartialPayoff::kFullPasses; ++i) {
      payoff_.RecordPass(PassKind::kFull, slower);
      payoff_.RecordFullStep(slower, /*tokens=*/1, false);
    }
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(payoff_.Decide(costs_, &trying_)) << slower;
      payoff_.RecordPass(PassKind::kPartial, slower);
      payoff_.RecordPass(PassKind::kSettling, slower);
      payoff_.RecordTrunk(10, false);
      payoff_.RecordRound(/*time=*/8 * slower, /*tokens=*/11);
    }
    trunks.push_back(payoff_.MaxTrunk(costs_));
  }
  EXPECT_GT(trunks[0], 16);
  EXPECT_EQ(trunks[0], trunks[1]);
}

TEST_F(PayoffTest, AGreatLossEndsThemAtOnce) {
  TimeFullPasses();
  EXPECT_TRUE(payoff_.Decide(costs_, &trying_));
  payoff_.RecordRound(/*time=*/10, /*tokens=*/1);
  EXPECT_FALSE(payoff_.Decide(costs_, &trying_));
}

TEST_F(PayoffTest, AShortPrefixIsNotWorthATrial) {
  TimeFullPasses();
  costs_.full_step = 1.2;
  EXPECT_EQ(ShareOfRounds(3000, /*agreeing=*/100), 0);
}

}  // namespace
}  // namespace talon
