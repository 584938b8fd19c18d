#include "observe/metrics.h"

#include <algorithm>
#include <cmath>

namespace talon {
namespace {

constexpr double kRatioBounds[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
constexpr double kCosineBounds[] = {0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0};
constexpr double kNatsBounds[] = {1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10};

}  // namespace

const char* CounterName(Counter counter) {
  switch (counter) {
    case Counter::kKvBytesWritten:
      return "kv_bytes_written_total";
    case Counter::kKvRewoundTokens:
      return "kv_rewound_tokens_total";
    case Counter::kNworBytesSaved:
      return "nwor_bytes_saved_total";
    case Counter::kNworFallback:
      return "nwor_fallback_total";
    case Counter::kNworStageOperations:
      return "nwor_stage_operations_total";
    case Counter::kNworStagedTokens:
      return "nwor_staged_tokens_total";
    case Counter::kNworTokensCommitted:
      return "nwor_tokens_committed_total";
    case Counter::kNworTokensRejected:
      return "nwor_tokens_rejected_total";
    case Counter::kScvChunks:
      return "scv_chunks_total";
    case Counter::kSpecAcceptedAtDepth:
      return "spec_accepted_at_depth_total";
    case Counter::kSpecAcceptedTokens:
      return "spec_accepted_tokens_total";
    case Counter::kSpecDraftTokens:
      return "spec_draft_tokens_total";
    case Counter::kSpecFallback:
      return "spec_fallback_total";
    case Counter::kSpecVerifyPasses:
      return "spec_verify_passes_total";
    case Counter::kSpecPvArgmaxDisagreements:
      return "specpv_argmax_disagreements_total";
    case Counter::kSpecPvCheckedTokens:
      return "specpv_checked_tokens_total";
    case Counter::kSpecPvConfirmedTokens:
      return "specpv_confirmed_tokens_total";
    case Counter::kSpecPvFallback:
      return "specpv_fallback_total";
    case Counter::kSpecPvRefresh:
      return "specpv_refresh_total";
    case Counter::kSpecPvRolledBackTokens:
      return "specpv_rolled_back_tokens_total";
  }
  return "unknown";
}

const char* GaugeName(Gauge gauge) {
  switch (gauge) {
    case Gauge::kSpecPvProvisionalTokens:
      return "specpv_provisional_tokens";
  }
  return "unknown";
}

const char* HistogramName(Histogram histogram) {
  switch (histogram) {
    case Histogram::kSpecPvHiddenCosine:
      return "specpv_hidden_cosine";
    case Histogram::kSpecPvKlNats:
      return "specpv_kl_nats";
    case Histogram::kSpecPvVisibleRatio:
      return "specpv_visible_ratio";
  }
  return "unknown";
}

std::span<const double> BucketBounds(Histogram histogram) {
  switch (histogram) {
    case Histogram::kSpecPvHiddenCosine:
      return kCosineBounds;
    case Histogram::kSpecPvKlNats:
      return kNatsBounds;
    case Histogram::kSpecPvVisibleRatio:
      return kRatioBounds;
  }
  return {};
}

void Metrics::Add(Counter counter, int64_t amount, std::string_view label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[{counter, std::string(label)}] += amount;
}

int64_t Metrics::Get(Counter counter, std::string_view label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = values_.find({counter, std::string(label)});
  return at == values_.end() ? 0 : at->second;
}

int64_t Metrics::Total(Counter counter) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t total = 0;
  for (auto at = values_.lower_bound({counter, ""});
       at != values_.end() && at->first.first == counter; ++at) {
    total += at->second;
  }
  return total;
}

void Metrics::Set(Gauge gauge, int64_t value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  gauges_[gauge] = value;
}

int64_t Metrics::Get(Gauge gauge) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = gauges_.find(gauge);
  return at == gauges_.end() ? 0 : at->second;
}

void Metrics::Observe(Histogram histogram, double value, std::string_view label) {
  const std::span<const double> bounds = BucketBounds(histogram);
  const auto bucket = std::isnan(value)
                          ? bounds.size()
                          : std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  const std::lock_guard<std::mutex> lock(mutex_);
  Distribution& seen = histograms_[{histogram, std::string(label)}];
  if (seen.buckets.empty()) seen.buckets.resize(bounds.size() + 1);
  ++seen.buckets[bucket];
  ++seen.count;
  if (!std::isnan(value)) seen.sum += value;
}

Distribution Metrics::Get(Histogram histogram, std::string_view label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = histograms_.find({histogram, std::string(label)});
  return at == histograms_.end() ? Distribution{} : at->second;
}

std::map<std::pair<std::string, std::string>, int64_t> Metrics::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::pair<std::string, std::string>, int64_t> out;
  for (const auto& [key, value] : values_) out[{CounterName(key.first), key.second}] = value;
  return out;
}

void Metrics::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_.clear();
  gauges_.clear();
  histograms_.clear();
}

}  // namespace talon
