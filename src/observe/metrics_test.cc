#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace talon {
namespace {

// The names of an enum that starts at 0 and is a list without gaps.
template <typename Kind>
std::vector<std::string> NamesOf(const char* (*name)(Kind)) {
  std::vector<std::string> names;
  for (int i = 0; name(static_cast<Kind>(i)) != std::string("unknown"); ++i) {
    names.emplace_back(name(static_cast<Kind>(i)));
  }
  return names;
}

TEST(MetricsTest, NamesAreSortedAndDiffer) {
  for (const auto& names : {NamesOf(CounterName), NamesOf(GaugeName), NamesOf(HistogramName)}) {
    EXPECT_FALSE(names.empty());
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end(), std::less_equal<>()));
  }
  for (const std::string& name : NamesOf(CounterName)) EXPECT_TRUE(name.ends_with("_total"));
}

TEST(MetricsTest, CountersByLabel) {
  Metrics metrics;
  EXPECT_EQ(metrics.Total(Counter::kSpecPvRefresh), 0);
  metrics.Add(Counter::kSpecPvRefresh, 2, "init");
  metrics.Add(Counter::kSpecPvRefresh, 3, "capacity");
  metrics.Add(Counter::kSpecPvRolledBackTokens, 7);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvRefresh, "init"), 2);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvRefresh, "drift"), 0);
  EXPECT_EQ(metrics.Total(Counter::kSpecPvRefresh), 5);
  EXPECT_EQ(metrics.Snapshot().at({"specpv_rolled_back_tokens_total", ""}), 7);
}

TEST(MetricsTest, GaugesKeepTheLastValue) {
  Metrics metrics;
  EXPECT_EQ(metrics.Get(Gauge::kSpecPvProvisionalTokens), 0);
  metrics.Set(Gauge::kSpecPvProvisionalTokens, 70);
  metrics.Set(Gauge::kSpecPvProvisionalTokens, 5);
  EXPECT_EQ(metrics.Get(Gauge::kSpecPvProvisionalTokens), 5);
}

TEST(MetricsTest, HistogramsCountEveryValueOnce) {
  Metrics metrics;
  EXPECT_EQ(metrics.Get(Histogram::kSpecPvVisibleRatio).count, 0);
  for (const double value : {0.05, 0.1, 0.11, 1.0, 1.5}) {
    metrics.Observe(Histogram::kSpecPvVisibleRatio, value);
  }
  metrics.Observe(Histogram::kSpecPvVisibleRatio, std::numeric_limits<double>::quiet_NaN());
  const Distribution seen = metrics.Get(Histogram::kSpecPvVisibleRatio);
  EXPECT_EQ(seen.count, 6);
  EXPECT_DOUBLE_EQ(seen.sum, 0.05 + 0.1 + 0.11 + 1.0 + 1.5);
  EXPECT_EQ(seen.buckets, (std::vector<int64_t>{2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2}));
}

TEST(MetricsTest, HistogramsKeepLabelsApart) {
  Metrics metrics;
  metrics.Observe(Histogram::kSpecPvKlNats, 0.002, "1");
  metrics.Observe(Histogram::kSpecPvKlNats, 0.004, "1");
  metrics.Observe(Histogram::kSpecPvKlNats, 0.5, "128");
  EXPECT_DOUBLE_EQ(metrics.Get(Histogram::kSpecPvKlNats, "1").Mean(), 0.003);
  EXPECT_EQ(metrics.Get(Histogram::kSpecPvKlNats, "128").count, 1);
  EXPECT_EQ(metrics.Get(Histogram::kSpecPvKlNats, "2").count, 0);
}

TEST(MetricsTest, BoundsAscend) {
  for (const Histogram histogram :
       {Histogram::kSpecPvHiddenCosine, Histogram::kSpecPvKlNats, Histogram::kSpecPvVisibleRatio}) {
    const auto bounds = BucketBounds(histogram);
    EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()));
  }
}

TEST(MetricsTest, ResetForgetsEverything) {
  Metrics metrics;
  metrics.Add(Counter::kSpecPvFallback, 1, "kv_dtype");
  metrics.Set(Gauge::kSpecPvProvisionalTokens, 3);
  metrics.Observe(Histogram::kSpecPvHiddenCosine, 0.99, "4");
  metrics.Reset();
  EXPECT_TRUE(metrics.Snapshot().empty());
  EXPECT_EQ(metrics.Get(Gauge::kSpecPvProvisionalTokens), 0);
  EXPECT_EQ(metrics.Get(Histogram::kSpecPvHiddenCosine, "4").count, 0);
}

}  // namespace
}  // namespace talon
