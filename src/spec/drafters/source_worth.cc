#include "spec/drafters/source_worth.h"

#include <algorithm>
#include <bit>

namespace talon {
namespace {

constexpr double kSlow = 0.05;        // weight of a new value in running means
constexpr double kFast = 0.3;         // the same where the values before it are old
constexpr int kTrials = 6;            // of either kind before they are compared
constexpr int kProbeInterval = 64;    // steps of one kind, then the other is tried again
constexpr double kCheapShare = 0.05;  // share of a token's time: always asked

}  // namespace

int SourceWorth::StrengthOf(double expected_tokens) {
  int strength = 0;
  for (double limit = 0.25; expected_tokens > limit && strength < kStrengths - 1; limit *= 2) {
    ++strength;
  }
  return strength;
}

size_t SourceWorth::SizeOf(const Batch& batch) {
  const size_t others = std::max<size_t>(batch.strengths.size(), 1) - 1;
  return std::min<size_t>(std::bit_width(others), kBatchSizes - 1);
}

SourceWorth::Batch SourceWorth::BatchOf(std::span<const double> expected_tokens) {
  Batch batch;
  double sum = 0;
  for (const double expected : expected_tokens) {
    batch.strengths.push_back(StrengthOf(expected));
    sum += expected;
  }
  batch.mean_strength = StrengthOf(sum / std::max<double>(expected_tokens.size(), 1));
  return batch;
}

bool SourceWorth::IsCheap(double token_seconds) const {
  if (token_seconds <= 0) return true;
  return !proposals_.empty() && proposals_.Median() < kCheapShare * token_seconds;
}

std::vector<bool> SourceWorth::Choose(const Batch& batch, double token_seconds) const {
  const std::vector<int>& strengths = batch.strengths;
  const auto& [without, with] = steps_[SizeOf(batch)][batch.mean_strength];
  const bool is_trial = with.count < kTrials || without.count < kTrials;
  const bool tries_with =
      is_trial ? with.count <= without.count : with.since_last >= kProbeInterval;
  const bool tries_without = is_trial ? !tries_with : without.since_last >= kProbeInterval;
  if (tries_with || tries_without) return std::vector<bool>(strengths.size(), tries_with);

  std::vector<bool> gains(strengths.size());
  std::vector<bool> unknown(strengths.size());
  double gained = 0;
  for (size_t i = 0; i < strengths.size(); ++i) {
    const auto& [plain, asked] = tokens_[strengths[i]];
    unknown[i] = (plain.count < kTrials || asked.count < kTrials) && asked.count <= plain.count;
    gains[i] = unknown[i] || asked.mean > plain.mean;
    if (!unknown[i] && gains[i]) gained += asked.mean - plain.mean;
  }
  const bool pays = token_seconds <= 0 || gained * token_seconds > with.seconds - without.seconds;
  return pays ? gains : unknown;
}

void SourceWorth::ObserveProposal(double seconds) { proposals_.Add(seconds); }

void SourceWorth::ObserveTokens(int strength, bool asked, int tokens) {
  Tokens& kind = tokens_[strength][asked ? 1 : 0];
  kind.mean += std::max(kSlow, 1.0 / ++kind.count) * (tokens - kind.mean);
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
