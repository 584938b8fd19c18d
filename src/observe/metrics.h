// Counters of what the engine did, by the names users see ("talon_" is added on export).
//
// One sorted list. Labels are values of the metric's single label key. Thread-safe.
#ifndef TALON_OBSERVE_METRICS_H_
#define TALON_OBSERVE_METRICS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

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
  kScvChunks,            // outcome: run, skipped
  kSpecAcceptedAtDepth,  // depth 1..16
  kSpecAcceptedTokens,   // drafter
  kSpecDraftTokens,      // drafter
  kSpecFallback,         // reason
  kSpecVerifyPasses,     // mode: full, partial, plain
};

const char* CounterName(Counter counter);

class Metrics {
 public:
  void Add(Counter counter, int64_t amount, std::string_view label = {});
  // Of one label value; without a label the sum over all of them.
  int64_t Get(Counter counter, std::string_view label) const;
  int64_t Total(Counter counter) const;
  // All values, sorted by name then label.
  std::map<std::pair<std::string, std::string>, int64_t> Snapshot() const;
  void Reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<Counter, std::string>, int64_t> values_;
};

}  // namespace talon

#endif  // TALON_OBSERVE_METRICS_H_
