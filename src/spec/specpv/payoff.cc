#include "spec/specpv/payoff.h"

#include <algorithm>
#include <cmath>

namespace talon {

void PassRatios::Record(PassKind kind, double ratio) {
  switch (kind) {
    case PassKind::kFull:
      return full_.Add(ratio);
    case PassKind::kPartial:
      return partial_.Add(ratio);
    case PassKind::kSettling:
      if (!partial_.empty()) views_.Add(partial_.Median() / ratio);
      if (full_.size() >= kFewRounds) settling_.Add(ratio / full_.Median());
      partial_ = {};
      full_ = {};
  }
}

void PartialPayoff::RecordDraftStep(double rows, double tokens, double seconds) {
  constexpr double kWeight = 0.05;
  constexpr int kPriorSteps = 1;  // weight of what is assumed
  const double weight = std::max(kWeight, 1.0 / (++draft_.steps + kPriorSteps));
  draft_.rows += weight * (rows - draft_.rows);
  draft_.tokens += weight * (tokens - draft_.tokens);
  draft_.seconds += (draft_.steps == 1 ? 1 : weight) * (seconds - draft_.seconds);
}

void PartialPayoff::RecordFullStep(int tokens) {
  ++full_steps_;
  odds_.Fade(tokens);
  balance_ = std::min(balance_ + kTrialShare * tokens, kMostSaved);
}

void PartialPayoff::RecordRound(double seconds, int tokens) {
  if (full_token_ <= 0) return;
  balance_ = std::min(balance_ + tokens - seconds / full_token_, kMostSaved);
}

// Steps draft where that is faster.
RoundCosts PartialPayoff::CostsOf(const PassSeconds& passes) {
  const bool drafts = draft_.steps > 0;
  const auto token_of = [&](const std::function<double(double)>& pass) {
    return drafts ? (pass(draft_.rows) + draft_.seconds) / draft_.tokens : HUGE_VAL;
  };
  RoundCosts costs;
  const double drafting = token_of(passes.full);
  const double plain = passes.full(1);
  full_token_ = std::min(plain, drafting);
  costs.full_token = full_token_;
  const double partial = token_of(passes.partial);
  costs.partial_token = std::min(passes.partial(1), partial);
  costs.step_tokens = partial < passes.partial(1) ? draft_.tokens : 1;
  costs.settled_drafts = drafting < plain ? draft_.tokens - 1 : 0;
  const double rows = drafting < plain ? draft_.rows : 1;
  const double seconds = drafting < plain ? draft_.seconds : 0;
  costs.settling = [settling = passes.settling, rows, seconds](double tokens) {
    return settling(tokens + rows) + seconds;
  };
  return costs;
}

// By usual costs, in rows of a full pass.
int PartialPayoff::UnpricedTrunk() const {
  const double odds = odds_.Odds(0);
  if (odds == 0) return kNoLimit;
  const RoundCosts usual{
      .full_token = 1, .partial_token = 0.4, .settling = [](double tokens) { return 12 + tokens; }};
  return BestRound(usual, odds, kNoLimit, HUGE_VAL).trunk;
}

int PartialPayoff::Decide(const PassSeconds& passes, double expected_odds, double lost,
                          int most_tokens) {
  if (passes.full(1) <= 0) return UnpricedTrunk();
  const RoundCosts costs = CostsOf(passes);
  if (full_steps_ < kFirstSteps) return 0;
  const double affordable = (balance_ - std::min(lost, balance_ / 2)) * full_token_;
  const PartialRound best = BestRound(costs, odds_.Odds(expected_odds), most_tokens, affordable);
  return best.gain >= kMinGain ? best.trunk : 0;
}

}  // namespace talon
