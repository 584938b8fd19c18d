// What the engine did, by the names users see ("talon_" is added on export).
//
// One sorted list per kind. Labels are values of the metric's single label key. Thread-safe.
#ifndef TALON_OBSERVE_METRICS_H_
#define TALON_OBSERVE_METRICS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace talon {

enum class Counter {
  kKvBytesWritten,  // kind: prefill, commit, copy
  kKvRewoundTokens,
  kNworBytesSaved,
  kNworFallback,         // reason
  kNworStageOperations,  // (row, layer) pairs
  kNworStagedTokens,     // distinct rows
  kNworTokensCommitted,
  kNworTokensRejected,
  kScvChunks,                  // outcome: run, skipped
  kSpecAcceptedAtDepth,        // depth 1..16
  kSpecAcceptedTokens,         // drafter
  kSpecDraftTokens,            // drafter
  kSpecFallback,               // reason
  kSpecVerifyPasses,           // mode: full, partial, plain
  kSpecPvArgmaxDisagreements,  // distance; of the checked tokens
  kSpecPvCheckedTokens,        // distance; provisional tokens compared with a full pass
  kSpecPvConfirmedTokens,      // provisional tokens that a full pass drew too
  kSpecPvFallback,             // reason
  kSpecPvRefresh,              // reason
  kSpecPvRolledBackTokens,
};

enum class Gauge {
  kSpecPvProvisionalTokens,  // now waiting for a full pass, of all sequences
};

enum class Histogram {
  kSpecPvHiddenCosine,  // distance; full against partial, shadow steps only
  kSpecPvKlNats,        // distance; KL(full || partial), shadow steps only
  kSpecPvVisibleRatio,  // visible prefix tokens / C, of partial passes
};

const char* CounterName(Counter counter);
const char* GaugeName(Gauge gauge);
const char* HistogramName(Histogram histogram);
// Upper ends of a histogram's buckets, ascending; one more bucket takes what is above the last.
std::span<const double> BucketBounds(Histogram histogram);

// What a histogram has seen.
struct Distribution {
  int64_t count = 0;
  double sum = 0;
  std::vector<int64_t> buckets;  // [bounds + 1], empty if nothing was seen

  double Mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

class Metrics {
 public:
  void Add(Counter counter, int64_t amount, std::string_view label = {});
  // Of one label value; without a label the sum over all of them.
  int64_t Get(Counter counter, std::string_view label) const;
  int64_t Total(Counter counter) const;
  void Set(Gauge gauge, int64_t value);
  int64_t Get(Gauge gauge) const;
  // NaN counts in the last bucket and does not enter the sum.
  void Observe(Histogram histogram, double value, std::string_view label = {});
  Distribution Get(Histogram histogram, std::string_view label = {}) const;
  // All counters, sorted by name then label.
  std::map<std::pair<std::string, std::string>, int64_t> Snapshot() const;
  void Reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<Counter, std::string>, int64_t> values_;
  std::map<Gauge, int64_t> gauges_;
  std::map<std::pair<Histogram, std::string>, Distribution> histograms_;
};

}  // namespace talon

#endif  // TALON_OBSERVE_METRICS_H_
