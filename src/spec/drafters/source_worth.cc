#include "spec/drafters/source_worth.h"

#include <algorithm>

namespace talon {
namespace {

constexpr double kSlow = 0.05;        // weight of a new value in running means
constexpr double kFast = 0.3;         // the same where the values before it are old
constexpr int kTrials = 6;            // steps of either kind before they are compared
constexpr int kProbeInterval = 64;    // steps of one kind, then the other is tried again
constexpr double kCheapShare = 0.05;  // share of a token's time: always asked

}  // namespace

int SourceWorth::BucketOf(double expected_tokens) {
  int bucket = 0;
  for (double limit = 0.25; expected_tokens > limit && bucket < kBuckets - 1; limit *= 2) ++bucket;
  return bucket;
}

bool SourceWorth::IsCheap(double token_seconds) const {
  if (token_seconds <= 0) return true;
  return !proposals_.empty() && proposals_.Median() < kCheapShare * token_seconds;
}

bool SourceWorth::Pays(int bucket, double token_seconds) const {
  const auto& [without, with] = steps_[bucket];
  if (with.count < kTrials || without.count < kTrials) return with.count <= without.count;
  if (with.since_last >= kProbeInterval) return true;
  if (without.since_last >= kProbeInterval) return false;
  return (with.tokens - without.tokens) * token_seconds > with.seconds - without.seconds;
}

void SourceWorth::ObserveProposal(double seconds) { proposals_.Add(seconds); }

void SourceWorth::ObserveStep(int bucket, bool asked, int tokens, double seconds) {
  auto& kinds = steps_[bucket];
  Steps& steps = kinds[asked ? 1 : 0];
  steps.tokens += std::max(kSlow, 1.0 / ++steps.count) * (tokens - steps.tokens);
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
