#include "spec/specpv/payoff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace talon {
namespace {

constexpr double kExpected = 0.03;
constexpr int kRoom = 96;

// A machine that takes a second for the full pass of one row over the prefix and reads a partial
// view in `view` of that.
struct Machine {
  double view = 0.3;
  double speed = 1;

  PassSeconds Passes() const {
    const double row = 0.08;
    const auto pass = [row](double prefix) {
      return [=](double rows) { return prefix + row * (rows - 1); };
    };
    return {.full = pass(1), .partial = pass(view), .settling = pass(1)};
  }
};

class PayoffTest : public testing::Test {
 protected:
  void FullSteps(int count) {
    for (int i = 0; i < count; ++i) {
      payoff_.RecordFullStep(1);
      gained_ += 0;
    }
  }
  int Decide() { return payoff_.Decide(machine_.Passes(), kExpected, lost_, kRoom); }

  // A round of plain partial steps and the pass that judges them.
  void Round(int trunk, int agreeing) {
    const PassSeconds passes = machine_.Passes();
    const int confirmed = std::min(agreeing, trunk);
    payoff_.RecordTrunk(confirmed, confirmed < trunk);
    const double seconds = trunk * passes.partial(1) + passes.settling(trunk + 1);
    payoff_.RecordRound(seconds, confirmed + 1);
    gained_ += confirmed + 1 - seconds;
  }
  // Tokens of such a text until at least so many, `agreeing` of each round's; the rounds.
  int Write(int tokens, int agreeing) {
    int rounds = 0;
    for (int written = 0; written < tokens;) {
      const int trunk = Decide();
      if (trunk == 0) {
        FullSteps(1);
        ++written;
      } else {
        ++rounds;
        Round(trunk, agreeing);
        written += std::min(agreeing, trunk) + 1;
      }
    }
    return rounds;
  }

  Machine machine_;
  PartialPayoff payoff_;
  double lost_ = 0;    // by drafts
  double gained_ = 0;  // seconds, against full steps
};

TEST_F(PayoffTest, UnknownCostsAlwaysPay) {
  const auto nothing = [](double) { return 0.0; };
  const PassSeconds unknown{.full = nothing, .partial = nothing, .settling = nothing};
  EXPECT_EQ(payoff_.Decide(unknown, kExpected, 0, kRoom), PartialPayoff::kNoLimit);
  for (int i = 0; i < 50; ++i) payoff_.RecordTrunk(9, true);
  const int trunk = payoff_.Decide(unknown, kExpected, 0, kRoom);
  EXPECT_GE(trunk, 4);
  EXPECT_LE(trunk, 12);
}

TEST_F(PayoffTest, FullStepsComeFirst) {
  for (int i = 0; i < PartialPayoff::kFirstSteps; ++i) {
    EXPECT_EQ(Decide(), 0);
    FullSteps(1);
  }
  EXPECT_GT(Decide(), 0);
}

TEST_F(PayoffTest, TrunksGrowWithWhatTheyGain) {
  FullSteps(PartialPayoff::kFirstSteps);
  const int first = Decide();
  EXPECT_LE(first, 3);
  Write(500, /*agreeing=*/100);
  EXPECT_GE(Decide(), 12);
  EXPECT_GT(gained_, 200);
}

TEST_F(PayoffTest, ATextThatNeverAgreesCostsLittle) {
  FullSteps(PartialPayoff::kFirstSteps);
  Write(128, /*agreeing=*/0);
  EXPECT_LT(gained_, 0);
  EXPECT_GE(gained_, -PartialPayoff::kAllowance - 140 * PartialPayoff::kTrialShare);
  gained_ = 0;
  Write(10000, /*agreeing=*/0);
  EXPECT_GE(gained_, -10000 * PartialPayoff::kTrialShare);
}

// Rounds that agree for a while and then no longer.
TEST_F(PayoffTest, ATextThatChangesTakesLittleBack) {
  for (int agreeing_tokens = 0; agreeing_tokens < 400; agreeing_tokens += 20) {
    payoff_ = {};
    FullSteps(PartialPayoff::kFirstSteps);
    Write(agreeing_tokens, /*agreeing=*/100);
    const double before = gained_ = std::min(gained_, PartialPayoff::kMostSaved);
    Write(128, /*agreeing=*/0);
    EXPECT_GE(gained_, std::min(0.0, before) - PartialPayoff::kAllowance - 1.3) << agreeing_tokens;
    gained_ = 0;
  }
}

TEST_F(PayoffTest, AnotherTextTurnsThemOnAgain) {
  FullSteps(PartialPayoff::kFirstSteps);
  Write(1000, /*agreeing=*/0);
  Write(400, /*agreeing=*/100);
  gained_ = 0;
  Write(400, /*agreeing=*/100);
  EXPECT_GT(gained_, 100);
}

TEST_F(PayoffTest, AShortPrefixIsNotWorthATrial) {
  machine_.view = 0.9;
  FullSteps(PartialPayoff::kFirstSteps);
  EXPECT_EQ(Write(3000, /*agreeing=*/100), 0);
}

// Full steps draft, three tokens in the time of 1.9 plain ones, which partial ones must beat.
TEST_F(PayoffTest, RoundsAreWeighedAgainstTheBetterFullSteps) {
  machine_.view = 0.6;
  FullSteps(PartialPayoff::kFirstSteps);
  EXPECT_GT(Decide(), 0);
  for (int i = 0; i < 40; ++i) payoff_.RecordDraftStep(/*rows=*/6, /*tokens=*/3, /*seconds=*/0.5);
  EXPECT_EQ(Decide(), 0);
}

TEST(PassRatios, AreTakenWithinARound) {
  PassRatios ratios;
  double speed = 1;
  for (size_t round = 0; round < PassRatios::kFewRounds; ++round) {
    EXPECT_EQ(ratios.partial(), 1);
    EXPECT_EQ(ratios.settling(), 1);
    for (size_t i = 0; i < PassRatios::kFewRounds; ++i) ratios.Record(PassKind::kFull, speed);
    ratios.Record(PassKind::kPartial, 0.6 * speed);
    ratios.Record(PassKind::kPartial, 0.6 * speed);
    ratios.Record(PassKind::kSettling, 1.2 * speed);
    speed *= 1.7;  // everything takes longer
  }
  EXPECT_DOUBLE_EQ(ratios.settling(), 1.2);
  EXPECT_DOUBLE_EQ(ratios.partial(), 0.6);
}

// Rounds one after the other say nothing of full passes.
TEST(PassRatios, SettlingPassesAreComparedWithFullOnesJustBefore) {
  PassRatios ratios;
  for (int i = 0; i < 10; ++i) {
    ratios.Record(PassKind::kPartial, 1);
    ratios.Record(PassKind::kSettling, 2);
  }
  EXPECT_EQ(ratios.settling(), 1);
  EXPECT_EQ(ratios.partial(), 0.5);
}

}  // namespace
}  // namespace talon
