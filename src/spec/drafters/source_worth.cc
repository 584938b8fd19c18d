#include "spec/drafters/source_worth.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace talon {
namespace {

constexpr double kSlow = 0.05;        // weight of a new value in running means
constexpr double kFast = 0.3;         // the same where the values before it are old
constexpr int kTrials = 6;            // trials of either kind before they are compared
constexpr int kProbeInterval = 64;    // steps of one kind, then the other is tried again
constexpr double kCheapShare = 0.05;  // share of a token's time: always asked

}  // namespace

int SourceWorth::StrengthOf(double expected) {
  int strength = 0;
  for (double limit = 0.25; expected > limit && strength < kStrengths - 1; limit *= 2) ++strength;
  return strength;
}

size_t SourceWorth::SizeOf(const Batch& batch) {
  const size_t others = std::max<size_t>(batch.strengths.size(), 1) - 1;
  return std::min<size_t>(std::bit_width(others), kBatchSizes - 1);
}

SourceWorth::Batch SourceWorth::BatchOf(std::span<const double> expected) {
  Batch batch{.expected = {expected.begin(), expected.end()}};
  for (const double tokens : expected) batch.strengths.push_back(StrengthOf(tokens));
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  batch.mean_strength = StrengthOf(sum / std::max<double>(expected.size(), 1));
  return batch;
}

bool SourceWorth::IsCheap(double token_seconds) const {
  if (token_seconds <= 0) return true;
  return !proposals_.empty() && proposals_.Median() < kCheapShare * token_seconds;
}

double SourceWorth::Gain(int strength, double expected) const {
  const auto& [without, with] = tokens_[strength];
  if (without.count >= kTrials && with.count >= kTrials) return with.mean - without.mean;
  return usual_.count >= kTrials ? usual_.mean - (1 + expected) : 1;
}

std::vector<bool> SourceWorth::Choose(const Batch& batch, double token_seconds) const {
  const size_t count = batch.strengths.size();
  const auto& [without, with] = steps_[SizeOf(batch)][batch.mean_strength];
  if (with.since_last >= kProbeInterval) return std::vector<bool>(count, true);
  if (without.since_last >= kProbeInterval) return std::vector<bool>(count, false);

  std::vector<bool> gains(count);
  double gained = 0;
  for (size_t i = 0; i < count; ++i) {
    const double gain = Gain(batch.strengths[i], batch.expected[i]);
    gains[i] = gain > 0;
    gained += std::max(gain, 0.0);
  }
  const bool tried = with.count >= kTrials && without.count >= kTrials;
  const bool pays =
      !tried ? with.count <= without.count
             : token_seconds <= 0 || gained * token_seconds > with.seconds - without.seconds;
  return pays ? gains : std::vector<bool>(count, false);
}

void SourceWorth::ObserveProposal(double seconds) { proposals_.Add(seconds); }

void SourceWorth::Tokens::Add(int tokens) {
  step_sum += tokens;
  ++step_count;
}

void SourceWorth::Tokens::EndStep() {
  if (step_count == 0) return;
  count += step_count;
  const double weight = std::max(kSlow, static_cast<double>(step_count) / count);
  mean += weight * (step_sum / step_count - mean);
  step_sum = step_count = 0;
}

void SourceWorth::ObserveTokens(std::span<const Gained> sequences) {
  for (const auto& [strength, asked, tokens] : sequences) {
    tokens_[strength][asked ? 1 : 0].Add(tokens);
    if (asked) usual_.Add(tokens);
  }
  for (auto& kinds : tokens_) {
    for (Tokens& tokens : kinds) tokens.EndStep();
  }
  usual_.EndStep();
}

void SourceWorth::ObserveStep(const Batch& batch, bool asked, double seconds) {
  auto& kinds = steps_[SizeOf(batch)][batch.mean_strength];
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
