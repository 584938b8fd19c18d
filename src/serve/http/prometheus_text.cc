#include "serve/http/prometheus_text.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

namespace talon {
namespace {

prometheus::MetricType ToPrometheus(MetricFamily::Type type) {
  switch (type) {
    case MetricFamily::Type::kCounter:
      return prometheus::MetricType::Counter;
    case MetricFamily::Type::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricFamily::Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// Our buckets count for themselves, theirs count everything up to their end.
prometheus::ClientMetric::Histogram ToPrometheus(const Distribution& seen,
                                                 std::span<const double> bounds) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = seen.count;
  histogram.sample_sum = seen.sum;
  uint64_t count = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!seen.buckets.empty()) count += seen.buckets[i];
    histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bounds[i]});
  }
  histogram.bucket.push_back({.cumulative_count = histogram.sample_count,
                              .upper_bound = std::numeric_limits<double>::infinity()});
  return histogram;
}

std::vector<prometheus::ClientMetric::Label> ToPrometheus(const MetricInfo& info,
                                                          const MetricFamily::Series& series) {
  std::vector<prometheus::ClientMetric::Label> labels;
  const auto add = [&](const char* key, const std::string& value) {
    if (key[0] != '\0') labels.push_back({.name = key, .value = value});
  };
  add(info.label, series.label);
  add(info.second_label, series.second_label);
  return labels;
}

prometheus::MetricFamily ToPrometheus(const MetricFamily& ours) {
  const MetricInfo& info = *ours.info;
  prometheus::MetricFamily family;
  family.name = std::string("talon_") + info.name;
  family.help = info.help;
  family.type = ToPrometheus(ours.type);
  for (const MetricFamily::Series& series : ours.series) {
    prometheus::ClientMetric metric;
    metric.label = ToPrometheus(info, series);
    metric.counter.value = series.value;
    metric.gauge.value = series.value;
    metric.histogram = ToPrometheus(series.distribution, info.bounds);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::string PrometheusText(const Metrics& metrics) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricFamily& family : metrics.Collect()) families.push_back(ToPrometheus(family));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace talon
