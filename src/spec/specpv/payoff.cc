#include "spec/specpv/payoff.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace talon {
namespace {

constexpr double kExpectedOdds = 0.01;  // prior odds of disagreement

TrunkCosts TrunkCostsOf(const StepCosts& costs) {
  constexpr double kTreeRows = 3;  // drafts that a full pass keeps
  if (costs.replay_row <= 0) return {};
  return {.fixed = kTreeRows + std::max(costs.replay_pass, 0.0) / costs.replay_row,
          .per_token = 1 + costs.partial_step / costs.tokens_per_step / costs.replay_row,
          .expected_odds = kExpectedOdds};
}

}  // namespace

void PartialPayoff::RecordPass(PassKind kind, double ratio) {
  switch (kind) {
    case PassKind::kFull:
      return full_.Add(ratio);
    case PassKind::kPartial:
      return partial_.Add(ratio);
    case PassKind::kSettling:
      return settling_.Add(ratio);
  }
}

void PartialPayoff::RecordTrunk(int confirmed, bool disagreed) {
  seen_.RecordTrunk(confirmed, disagreed);
  trial_interval_ = std::max(kFirstTrial, trial_interval_ - confirmed);
}

void PartialPayoff::RecordRound(double time, int tokens) {
  constexpr double kKept = 0.8;
  constexpr double kSavedKept = 0.95;
  round_time_ = kKept * round_time_ + time;
  round_tokens_ = kKept * round_tokens_ + tokens;
  if (std::isfinite(FullToken())) saved_ = kSavedKept * saved_ + tokens - time / FullToken();
  ++rounds_;
}

void PartialPayoff::RecordFullStep(double time, int tokens, bool drafted) {
  (drafted ? draft_token_ : plain_token_).Add(time / tokens);
}

double PartialPayoff::FullToken() const {
  double full = std::numeric_limits<double>::infinity();
  for (const RecentTimes* times : {&plain_token_, &draft_token_}) {
    if (!times->empty()) full = std::min(full, times->Median());
  }
  return full;
}

bool PartialPayoff::LosesByClock() const {
  return rounds_ >= kFewRounds && round_time_ > round_tokens_ * FullToken();
}

int PartialPayoff::AffordableTrunk(const StepCosts& costs) const {
  constexpr double kAllowance = 2;   // tokens of full steps
  constexpr double kFirstTrunk = 4;  // shorter rounds save nothing
  const double wasted = costs.partial_step / costs.tokens_per_step + costs.replay_row;
  if (wasted <= 0) return TrunkLength::kNoLimit;
  const double trunk = (kAllowance + saved_) * costs.full_step / costs.tokens_per_step / wasted;
  if (trunk < kFirstTrunk / 3) return 0;
  return static_cast<int>(std::clamp(trunk, kFirstTrunk, 1e6));
}

// Settling passes do more than full ones: if they seem to take less, full ones were disturbed.
double PartialPayoff::FullRatio() const {
  if (full_.empty()) return 1;
  const double ratio = full_.Median();
  return settling_.size() < kFullPasses ? ratio : std::min(ratio, settling_.Median());
}

StepCosts PartialPayoff::Corrected(const StepCosts& by_curve, const TrunkLength& seen) const {
  const double full = FullRatio();
  const double settling = settling_.empty() ? full : settling_.Median();
  StepCosts costs = by_curve;
  costs.full_step *= full;
  costs.partial_step *= partial_.empty() ? full : partial_.Median();
  costs.replay_pass *= settling;
  costs.replay_row *= settling;
  costs.odds = seen.Odds(kExpectedOdds);
  costs.trunk = std::min(costs.trunk, seen.Limit(TrunkCostsOf(costs)));
  return costs;
}

// Unknown costs set no limit.
int PartialPayoff::MaxTrunk(const StepCosts& by_curve) const {
  const StepCosts costs = Corrected(by_curve, seen_);
  const int best = seen_.Limit(TrunkCostsOf(costs));
  return best == TrunkLength::kNoLimit ? best : std::clamp(AffordableTrunk(costs), 1, best);
}

bool PartialPayoff::Decide(const StepCosts& by_curve, bool* trying) {
  if (by_curve.full_step <= 0) return true;
  if (full_.size() < kFullPasses) return false;
  const auto pays = [&](const TrunkLength& seen) {
    const StepCosts costs = Corrected(by_curve, seen);
    return !LosesByClock() && AffordableTrunk(costs) > 0 && PartialPays(costs);
  };
  if (pays(seen_)) return true;
  if (!*trying && --until_trial_ <= 0) {
    *trying = true;
    Fade();
    until_trial_ = trial_interval_;
    trial_interval_ = std::min(2 * trial_interval_, kLastTrial);
  }
  // A trial makes sense only where they would pay without disagreements.
  *trying = *trying && pays(TrunkLength());
  return *trying;
}

void PartialPayoff::Fade() {
  seen_.Fade();
  partial_ = {};
  settling_ = {};
  // One round of the trial tells whether they still lose.
  constexpr double kLeft = 0.1;
  round_time_ *= kLeft;
  round_tokens_ *= kLeft;
  saved_ = 0;
  rounds_ = std::min(rounds_, kFewRounds - 1);
}

}  // namespace talon
