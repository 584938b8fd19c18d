#include "spec/drafters/source_worth.h"

#include <algorithm>
#include <bit>

namespace talon {
namespace {

constexpr double kSlow = 0.05;        // weight of a new value in running means
constexpr double kFast = 0.3;         // the same where the values before it are old
constexpr double kAssumed = 8;        // weight of what is assumed, in sequences
constexpr double kNewSource = 2.5;    // tokens that a source is assumed to give
constexpr int kTrials = 3;            // steps of either kind before their times are compared
constexpr int kProbeInterval = 64;    // steps of one kind, then the other is tried again
constexpr double kCheapShare = 0.05;  // share of a token's time: always asked

}  // namespace

size_t SourceWorth::StrengthOf(double promised) {
  size_t strength = 0;
  for (double limit = 0.25; promised > limit && strength < kStrengths - 1; limit *= 2) ++strength;
  return strength;
}

size_t SourceWorth::SizeOf(size_t sequences) {
  return std::min<size_t>(std::bit_width(std::max<size_t>(sequences, 1) - 1), kBatchSizes - 1);
}

bool SourceWorth::IsCheap(double token_seconds) const {
  if (token_seconds <= 0) return true;
  return !proposals_.empty() && proposals_.Median() < kCheapShare * token_seconds;
}

double SourceWorth::Gain(double promised) const {
  const double assumed = usual_.Blended(kNewSource) - (1 + promised);
  return added_[StrengthOf(promised)].Blended(std::max(assumed, 0.0));
}

std::vector<bool> SourceWorth::Choose(std::span<const double> promised,
                                      const StepPrices& prices) const {
  const std::vector<bool> all(promised.size(), true), none(promised.size());
  for (const double tokens : promised) {
    if (added_[StrengthOf(tokens)].skipped >= kProbeInterval) return all;
  }
  double of_step = 0;  // cost of a step in which it is asked at all
  if (proposals_.empty()) {
    const auto& [without, with] = steps_[SizeOf(promised.size())];
    const bool known = std::min(without.count, with.count) >= kTrials;
    if (without.since_last >= kProbeInterval || (!known && without.count < with.count)) return none;
    if (known) of_step = with.seconds - without.seconds;
  }
  const double of_sequence = proposal_seconds() + rows_ * prices.row;
  std::vector<bool> asked = none;
  double worth = -of_step;
  for (size_t i = 0; i < promised.size(); ++i) {
    const double gain = Gain(promised[i]);
    const double gained = prices.token > 0 ? gain * prices.token - of_sequence : gain;
    asked[i] = gained > 0;
    worth += std::max(gained, 0.0);
  }
  return prices.token <= 0 || worth > 0 ? asked : none;
}

void SourceWorth::ObserveProposal(double seconds, double rows) {
  rows_ += (proposals_.empty() ? 1.0 : kSlow) * (rows - rows_);
  proposals_.Add(seconds);
}

void SourceWorth::Tokens::Add(double tokens) {
  step_sum += tokens;
  ++step_count;
}

// What was learnt before a long time without it counts little.
void SourceWorth::Tokens::EndStep() {
  if (step_count > 0) {
    if (skipped >= kProbeInterval) count = std::min(count, static_cast<int>(1 / kFast));
    count += step_count;
    const double weight = std::max(kSlow, static_cast<double>(step_count) / count);
    mean += weight * (step_sum / step_count - mean);
    skipped = 0;
  } else if (skipping) {
    ++skipped;
  }
  step_sum = step_count = 0;
  skipping = false;
}

double SourceWorth::Tokens::Blended(double assumed) const {
  return (kAssumed * assumed + count * mean) / (kAssumed + count);
}

void SourceWorth::ObserveTokens(std::span<const Gained> sequences) {
  for (const auto& [promised, asked, tokens] : sequences) {
    Tokens& added = added_[StrengthOf(promised)];
    if (asked) {
      added.Add(tokens - (1 + promised));
      usual_.Add(tokens);
    } else {
      added.skipping = true;
    }
  }
  for (Tokens& added : added_) added.EndStep();
  usual_.EndStep();
}

void SourceWorth::ObserveStep(size_t sequences, bool asked, double seconds) {
  auto& kinds = steps_[SizeOf(sequences)];
  Steps& steps = kinds[asked ? 1 : 0];
  ++steps.count;
  steps.recent.Add(seconds);
  const double usual = steps.recent.Median();
  if (steps.recent.size() == RecentTimes::kWindow) {
    const double weight = steps.since_last >= kProbeInterval ? kFast : kSlow;
    steps.seconds +=
        weight * (std::min(seconds, RecentTimes::kOutlierFactor * usual) - steps.seconds);
  } else {
    steps.seconds = usual;
  }
  steps.since_last = 0;
  ++kinds[asked ? 0 : 1].since_last;
}

}  // namespace talon
