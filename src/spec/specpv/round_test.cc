#include "spec/specpv/round.h"

#include <gtest/gtest.h>

#include <limits>

namespace talon {
namespace {

constexpr double kAnyRisk = std::numeric_limits<double>::infinity();

// Plain steps over a long prefix: partial ones take a fifth, a full pass over a trunk half as much
// again and a tenth for each of its tokens.
RoundCosts LongCosts() {
  return {.full_token = 1, .partial_token = 0.2, .settling = [](double tokens) {
            return 1.5 + 0.1 * tokens;
          }};
}

TEST(ExpectedConfirmed, TokensBeforeTheFirstDisagreement) {
  EXPECT_EQ(ExpectedConfirmed(8, 0), 8);
  EXPECT_DOUBLE_EQ(ExpectedConfirmed(1, 0.25), 0.75);
  EXPECT_DOUBLE_EQ(ExpectedConfirmed(2, 0.25), 0.75 + 0.75 * 0.75);
  EXPECT_DOUBLE_EQ(ExpectedConfirmed(5, 1), 0);
}

TEST(DisagreementOdds, AreThoseThatWereSeen) {
  DisagreementOdds odds;
  EXPECT_EQ(odds.Odds(0), 0);
  EXPECT_DOUBLE_EQ(odds.Odds(0.03), 0.03);
  for (int i = 0; i < 100; ++i) odds.RecordTrunk(9, true);
  EXPECT_NEAR(odds.Odds(0.03), 0.1, 0.005);
  for (int i = 0; i < 10; ++i) odds.RecordTrunk(100, false);
  EXPECT_LT(odds.Odds(0.03), 0.005);  // old ones are forgotten
}

TEST(DisagreementOdds, FadeToWhatIsExpected) {
  DisagreementOdds odds;
  for (int i = 0; i < 20; ++i) odds.RecordTrunk(0, true);
  EXPECT_GT(odds.Odds(0.03), 0.8);
  for (int i = 0; i < 2000; ++i) odds.Fade(1);
  EXPECT_NEAR(odds.Odds(0.03), 0.03, 0.01);
}

TEST(BestRound, GainIsTokensPerSecondAgainstFullSteps) {
  const PartialRound round = BestRound(LongCosts(), /*odds=*/0, /*most_tokens=*/4, kAnyRisk);
  EXPECT_EQ(round.trunk, 4);
  EXPECT_DOUBLE_EQ(round.gain, 5 / (4 * 0.2 + 1.9));
  EXPECT_DOUBLE_EQ(round.at_risk, 4 * 0.2 + 1.9 - 1);
}

TEST(BestRound, DisagreementsMakeItShorter) {
  int longest = BestRound(LongCosts(), 0, 1000, kAnyRisk).trunk;
  EXPECT_EQ(longest, 128);
  for (const double odds : {0.003, 0.03, 0.1, 0.3}) {
    const PartialRound round = BestRound(LongCosts(), odds, 1000, kAnyRisk);
    EXPECT_LT(round.trunk, longest) << odds;
    longest = round.trunk;
  }
  EXPECT_LE(longest, 4);
}

TEST(BestRound, RisksWhatIsAffordable) {
  for (const double affordable : {0.8, 1.2, 1.8, 4.0}) {
    const PartialRound round = BestRound(LongCosts(), 0.01, 1000, affordable);
    EXPECT_GT(round.trunk, 0);
    EXPECT_LE(round.at_risk, affordable);
  }
  EXPECT_EQ(BestRound(LongCosts(), 0.01, 1000, 0.7).trunk, 0);
  EXPECT_EQ(BestRound(LongCosts(), 0.01, /*most_tokens=*/0, kAnyRisk).trunk, 0);
}

// A trunk ends with the step that completes it.
TEST(BestRound, StepsOfSeveralTokensOvershoot) {
  RoundCosts costs = LongCosts();
  costs.step_tokens = 3;
  costs.settled_drafts = 2;
  const PartialRound round = BestRound(costs, 0, 4, kAnyRisk);
  EXPECT_DOUBLE_EQ(round.gain, (5 + 1 + 2) / (5 * 0.2 + 2.0));
}

}  // namespace
}  // namespace talon
