#include "spec/specpv/governor.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/check.h"

namespace talon {

int AgreementByDistance::BucketOf(int distance) {
  TALON_DCHECK(distance >= 1);
  return std::min(kBuckets, static_cast<int>(std::bit_width(static_cast<unsigned>(distance)))) - 1;
}

void AgreementByDistance::Record(int distance, bool agrees) {
  const int bucket = BucketOf(distance);
  ++checked_[bucket];
  if (!agrees) ++disagreed_[bucket];
}

void AgreementByDistance::RecordTrunk(int confirmed, bool disagreed) {
  for (int distance = 1; distance <= confirmed; ++distance) Record(distance, true);
  if (disagreed) Record(confirmed + 1, false);
}

void AgreementByDistance::Merge(const AgreementByDistance& other) {
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    checked_[bucket] += other.checked_[bucket];
    disagreed_[bucket] += other.disagreed_[bucket];
  }
}

void AgreementByDistance::Publish(Metrics* metrics) const {
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    if (checked_[bucket] == 0) continue;
    const std::string label = std::to_string(FirstDistance(bucket));
    metrics->Add(Counter::kSpecPvCheckedTokens, checked_[bucket], label);
    metrics->Add(Counter::kSpecPvArgmaxDisagreements, disagreed_[bucket], label);
  }
}

int64_t AgreementByDistance::TotalChecked() const {
  return std::accumulate(checked_.begin(), checked_.end(), int64_t{0});
}

int64_t AgreementByDistance::TotalDisagreed() const {
  return std::accumulate(disagreed_.begin(), disagreed_.end(), int64_t{0});
}

DriftGovernor::DriftGovernor(const SpecPvConfig& config, const BlockBudget& budget)
    : error_target_(config.error_target),
      max_interval_(config.full_refresh_interval),
      max_retrieval_(config.Budget().retrieval),
      interval_(config.full_refresh_interval),
      budget_(budget) {}

void DriftGovernor::Record(bool agrees) {
  if (error_target_ <= 0) return;
  ++checked_;
  if (!agrees) ++disagreed_;
  if (checked_ == kWindow) Decide();
}

void DriftGovernor::RecordTrunk(int confirmed, bool disagreed) {
  for (int i = 0; i < confirmed; ++i) Record(true);
  if (disagreed) Record(false);
}

void DriftGovernor::Decide() {
  const bool above = disagreed_ > static_cast<double>(error_target_) * kWindow;
  if (!above) {
    interval_ = std::min(max_interval_, interval_ + 1);
  } else if (interval_ > 1) {
    interval_ /= 2;
  } else {
    budget_.retrieval = std::min(max_retrieval_, 2 * budget_.retrieval);
  }
  checked_ = 0;
  disagreed_ = 0;
}

}  // namespace talon
