#include "observe/metrics.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

namespace talon {
namespace {

// The cell of label values, made where they are new.
template <typename Cells>
auto& CellOf(Cells* cells, std::string_view label, std::string_view second_label = {}) {
  const auto at = cells->find(std::tuple(label, second_label));
  if (at != cells->end()) return at->second;
  return (*cells)[{std::string(label), std::string(second_label)}];
}

template <typename Cells>
typename Cells::mapped_type ValueOf(const Cells& cells, std::string_view label,
                                    std::string_view second_label = {}) {
  const auto at = cells.find(std::tuple(label, second_label));
  return at == cells.end() ? typename Cells::mapped_type{} : at->second;
}

size_t BucketOf(std::span<const double> bounds, double value) {
  if (std::isnan(value)) return bounds.size();
  return std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
}

void SetValue(MetricFamily::Series* series, double value) { series->value = value; }
void SetValue(MetricFamily::Series* series, const Distribution& seen) {
  series->distribution = seen;
}

// Adds the families of one kind of metric.
template <typename Kind, typename AllCells>
void AddFamilies(const AllCells& metrics, MetricFamily::Type type, std::vector<MetricFamily>* out) {
  for (size_t i = 0; i < metrics.size(); ++i) {
    const MetricInfo& info = Describe(static_cast<Kind>(i));
    MetricFamily family{.type = type, .info = &info};
    for (const auto& [labels, value] : metrics[i]) {
      const auto& [label, second_label] = labels;
      family.series.push_back({.label = label, .second_label = second_label});
      SetValue(&family.series.back(), value);
    }
    const bool labelled = info.label[0] != '\0';
    if (!labelled && family.series.empty()) family.series.push_back({});
    if (!family.series.empty()) out->push_back(std::move(family));
  }
}

}  // namespace

void Metrics::Add(Counter counter, int64_t amount, std::string_view label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CellOf(&counters_[static_cast<size_t>(counter)], label) += amount;
}

int64_t Metrics::Get(Counter counter, std::string_view label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ValueOf(counters_[static_cast<size_t>(counter)], label);
}

int64_t Metrics::Total(Counter counter) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t total = 0;
  for (const auto& [labels, value] : counters_[static_cast<size_t>(counter)]) total += value;
  return total;
}

void Metrics::Set(Gauge gauge, double value, std::string_view label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CellOf(&gauges_[static_cast<size_t>(gauge)], label) = value;
}

double Metrics::Get(Gauge gauge, std::string_view label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ValueOf(gauges_[static_cast<size_t>(gauge)], label);
}

void Metrics::Observe(Histogram histogram, double value, std::string_view label,
                      std::string_view second_label) {
  const std::span<const double> bounds = BucketBounds(histogram);
  const size_t bucket = BucketOf(bounds, value);
  const std::lock_guard<std::mutex> lock(mutex_);
  Distribution& seen = CellOf(&histograms_[static_cast<size_t>(histogram)], label, second_label);
  if (seen.buckets.empty()) seen.buckets.resize(bounds.size() + 1);
  ++seen.buckets[bucket];
  ++seen.count;
  if (!std::isnan(value)) seen.sum += value;
}

Distribution Metrics::Get(Histogram histogram, std::string_view label,
                          std::string_view second_label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ValueOf(histograms_[static_cast<size_t>(histogram)], label, second_label);
}

std::map<std::pair<std::string, std::string>, int64_t> Metrics::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::pair<std::string, std::string>, int64_t> out;
  for (size_t i = 0; i < counters_.size(); ++i) {
    const char* name = CounterName(static_cast<Counter>(i));
    for (const auto& [labels, value] : counters_[i]) out[{name, std::get<0>(labels)}] = value;
  }
  return out;
}

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<MetricFamily> families;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    AddFamilies<Counter>(counters_, MetricFamily::Type::kCounter, &families);
    AddFamilies<Gauge>(gauges_, MetricFamily::Type::kGauge, &families);
    AddFamilies<Histogram>(histograms_, MetricFamily::Type::kHistogram, &families);
  }
  std::sort(families.begin(), families.end(), [](const MetricFamily& a, const MetricFamily& b) {
    return std::string_view(a.info->name) < std::string_view(b.info->name);
  });
  return families;
}

void Metrics::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counters_.fill({});
  gauges_.fill({});
  histograms_.fill({});
}

}  // namespace talon
