// What the engine did, by the names users see ("talon_" is added on export).
//
// One sorted list per kind. Labels are values of the metric's label key, of a histogram's second
// one too; they come from small fixed sets, never from a client. Thread-safe; a count costs a lock
// and a look-up among the metric's few label values, and allocates only when a label value is new.
#ifndef TALON_OBSERVE_METRICS_H_
#define TALON_OBSERVE_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "observe/metric_names.h"

namespace talon {

// What a histogram has seen.
struct Distribution {
  int64_t count = 0;
  double sum = 0;
  std::vector<int64_t> buckets;  // [bounds + 1], empty if nothing was seen

  double Mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

// One metric with all its label values, for export.
struct MetricFamily {
  enum class Type { kCounter, kGauge, kHistogram };
  struct Series {
    std::string label;          // empty if the metric has no label key
    std::string second_label;   // likewise
    double value = 0;           // for a counter or gauge
    Distribution distribution;  // for a histogram
  };
  Type type = Type::kCounter;
  const MetricInfo* info = nullptr;
  std::vector<Series> series;  // sorted by labels
};

class Metrics {
 public:
  void Add(Counter counter, int64_t amount, std::string_view label = {});
  int64_t Get(Counter counter, std::string_view label) const;  // one label value
  int64_t Total(Counter counter) const;                        // all label values
  void Set(Gauge gauge, double value, std::string_view label = {});
  double Get(Gauge gauge, std::string_view label = {}) const;
  // NaN counts in the last bucket and does not enter the sum.
  void Observe(Histogram histogram, double value, std::string_view label = {},
               std::string_view second_label = {});
  Distribution Get(Histogram histogram, std::string_view label = {},
                   std::string_view second_label = {}) const;

  // All counters that were counted, sorted by name then label.
  std::map<std::pair<std::string, std::string>, int64_t> Snapshot() const;
  // Everything, of one moment, sorted by name. Metrics without a label key are always there, those
  // with one once a label value was seen.
  std::vector<MetricFamily> Collect() const;
  void Reset();

 private:
  // Transparent, so that string_views are found without making strings. Clang 14 cannot compare
  // tuples of different types.
  struct LabelsLess {
    using is_transparent = void;
    using Views = std::pair<std::string_view, std::string_view>;
    bool operator()(const auto& a, const auto& b) const {
      return Views(std::get<0>(a), std::get<1>(a)) < Views(std::get<0>(b), std::get<1>(b));
    }
  };
  // By label values.
  template <typename Value>
  using Cells = std::map<std::tuple<std::string, std::string>, Value, LabelsLess>;

  mutable std::mutex mutex_;
  std::array<Cells<int64_t>, kNumCounters> counters_;
  std::array<Cells<double>, kNumGauges> gauges_;
  std::array<Cells<Distribution>, kNumHistograms> histograms_;
};

}  // namespace talon

#endif  // TALON_OBSERVE_METRICS_H_
