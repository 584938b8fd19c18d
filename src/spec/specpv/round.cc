#include "spec/specpv/round.h"

#include <cmath>

namespace talon {
namespace {

constexpr double kMemory = 256;  // tokens

// Trunks end where a step has reached `trunk` tokens, by half of its others beyond it on average.
PartialRound ForecastRound(const RoundCosts& costs, double odds, int trunk) {
  const double tokens = trunk + (costs.step_tokens - 1) / 2;
  const double seconds = tokens * costs.partial_token + costs.settling(tokens);
  const double given =
      ExpectedConfirmed(tokens, odds) + 1 + std::pow(1 - odds, tokens) * costs.settled_drafts;
  return {.trunk = trunk,
          .gain = given * costs.full_token / seconds,
          .at_risk = seconds - costs.full_token};
}

}  // namespace

void DisagreementOdds::RecordTrunk(int confirmed, bool disagreed) {
  const int judged = confirmed + (disagreed ? 1 : 0);
  Fade(judged);
  judged_ += judged;
  disagreed_ += disagreed ? 1 : 0;
}

void DisagreementOdds::Fade(double tokens) {
  const double kept = std::exp(-tokens / kMemory);
  judged_ *= kept;
  disagreed_ *= kept;
}

double DisagreementOdds::Odds(double expected) const {
  constexpr double kExpectedTokens = 3;  // what the expectation weighs
  return (disagreed_ + expected * kExpectedTokens) / (judged_ + kExpectedTokens);
}

double ExpectedConfirmed(double tokens, double odds) {
  return odds > 0 ? (1 - odds) * (1 - std::pow(1 - odds, tokens)) / odds : tokens;
}

PartialRound BestRound(const RoundCosts& costs, double odds, int most_tokens, double affordable) {
  PartialRound best;
  for (const int trunk : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}) {
    if (trunk > most_tokens) break;
    const PartialRound round = ForecastRound(costs, odds, trunk);
    if (round.at_risk > affordable) break;
    if (round.gain > best.gain) best = round;
  }
  return best;
}

}  // namespace talon
