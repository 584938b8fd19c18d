#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace talon {
namespace {

template <typename Kind>
std::vector<std::string> NamesOf(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.emplace_back(Describe(static_cast<Kind>(i)).name);
  return names;
}

TEST(MetricsTest, NamesAreSortedAndDiffer) {
  for (const auto& names : {NamesOf<Counter>(kNumCounters), NamesOf<Gauge>(kNumGauges),
                            NamesOf<Histogram>(kNumHistograms)}) {
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end(), std::less_equal<>()));
  }
  for (const auto& name : NamesOf<Counter>(kNumCounters)) EXPECT_TRUE(name.ends_with("_total"));
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

TEST(MetricsTest, HistogramsKeepSecondLabelsApart) {
  Metrics metrics;
  metrics.Observe(Histogram::kRemoteRpcSeconds, 1, "VerifyDrafts", "ok");
  metrics.Observe(Histogram::kRemoteRpcSeconds, 2, "VerifyDrafts", "unavailable");
  EXPECT_EQ(metrics.Get(Histogram::kRemoteRpcSeconds, "VerifyDrafts", "ok").sum, 1);
  EXPECT_EQ(metrics.Get(Histogram::kRemoteRpcSeconds, "VerifyDrafts", "unavailable").sum, 2);
  EXPECT_EQ(metrics.Get(Histogram::kRemoteRpcSeconds, "VerifyDrafts").count, 0);
}

TEST(MetricsTest, BoundsAscend) {
  for (size_t i = 0; i < kNumHistograms; ++i) {
    const auto bounds = BucketBounds(static_cast<Histogram>(i));
    EXPECT_FALSE(bounds.empty());
    EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()));
  }
}

TEST(MetricsTest, GaugesByLabelAndRatios) {
  Metrics metrics;
  metrics.Set(Gauge::kKvBlocks, 3, "free");
  metrics.Set(Gauge::kKvBlocks, 5, "used");
  metrics.Set(Gauge::kKvUsageRatio, 0.625);
  EXPECT_EQ(metrics.Get(Gauge::kKvBlocks, "free"), 3);
  EXPECT_EQ(metrics.Get(Gauge::kKvBlocks, "used"), 5);
  EXPECT_EQ(metrics.Get(Gauge::kKvBlocks), 0);
  EXPECT_EQ(metrics.Get(Gauge::kKvUsageRatio), 0.625);
}

const MetricFamily* Find(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.info->name == name) return &family;
  }
  return nullptr;
}

TEST(MetricsTest, CollectHasEveryMetricThatNeedsNoLabel) {
  const auto families = Metrics().Collect();
  for (const MetricFamily& family : families) {
    EXPECT_STREQ(family.info->label, "");
    ASSERT_EQ(family.series.size(), 1);
    EXPECT_EQ(family.series[0].value, 0);
    EXPECT_EQ(family.series[0].distribution.count, 0);
  }
  EXPECT_NE(Find(families, "kv_evictions_total"), nullptr);
  EXPECT_NE(Find(families, "requests_running"), nullptr);
  EXPECT_NE(Find(families, "request_ttft_seconds"), nullptr);
  EXPECT_EQ(Find(families, "requests_total"), nullptr);
}

TEST(MetricsTest, CollectHasEveryMetricThatWasGivenALabel) {
  Metrics metrics;
  std::vector<std::string> names;
  const auto add = [&]<typename Kind>(size_t count, const auto& give) {
    for (size_t i = 0; i < count; ++i) {
      const auto kind = static_cast<Kind>(i);
      const MetricInfo& info = Describe(kind);
      give(kind, info.label[0] == '\0' ? "" : "x");
      names.emplace_back(info.name);
    }
  };
  add.operator()<Counter>(kNumCounters,
                          [&](Counter kind, const char* label) { metrics.Add(kind, 1, label); });
  add.operator()<Gauge>(kNumGauges,
                        [&](Gauge kind, const char* label) { metrics.Set(kind, 1, label); });
  add.operator()<Histogram>(
      kNumHistograms, [&](Histogram kind, const char* label) { metrics.Observe(kind, 1, label); });
  const auto families = metrics.Collect();
  EXPECT_EQ(families.size(), names.size());
  for (const std::string& name : names) EXPECT_NE(Find(families, name), nullptr) << name;
}

TEST(MetricsTest, CollectIsSortedAndTyped) {
  Metrics metrics;
  metrics.Add(Counter::kRequests, 2, "stop");
  metrics.Add(Counter::kRequests, 1, "length");
  metrics.Observe(Histogram::kSpecAcceptLength, 3, "NGRAM");
  const auto families = metrics.Collect();
  EXPECT_TRUE(std::is_sorted(families.begin(), families.end(), [](const auto& a, const auto& b) {
    return std::string(a.info->name) < b.info->name;
  }));
  const MetricFamily* requests = Find(families, "requests_total");
  ASSERT_NE(requests, nullptr);
  EXPECT_EQ(requests->type, MetricFamily::Type::kCounter);
  ASSERT_EQ(requests->series.size(), 2);
  EXPECT_EQ(requests->series[0].label, "length");
  EXPECT_EQ(requests->series[1].value, 2);
  const MetricFamily* lengths = Find(families, "spec_accept_length");
  ASSERT_NE(lengths, nullptr);
  EXPECT_EQ(lengths->type, MetricFamily::Type::kHistogram);
  EXPECT_EQ(lengths->series[0].distribution.sum, 3);
}

TEST(MetricsTest, ThreadsLoseNoCount) {
  constexpr int kCounts = 10000;
  Metrics metrics;
  const auto count = [&metrics](const char* label) {
    for (int i = 0; i < kCounts; ++i) {
      metrics.Add(Counter::kSpecVerifyPasses, 1, label);
      metrics.Observe(Histogram::kSpecTreeNodes, i);
    }
  };
  std::thread other(count, "full");
  count("plain");
  other.join();
  EXPECT_EQ(metrics.Total(Counter::kSpecVerifyPasses), 2 * kCounts);
  EXPECT_EQ(metrics.Get(Counter::kSpecVerifyPasses, "full"), kCounts);
  EXPECT_EQ(metrics.Get(Histogram::kSpecTreeNodes).count, 2 * kCounts);
}

TEST(MetricsTest, ResetForgetsEverything) {
  Metrics metrics;
  metrics.Add(Counter::kSpecPvFallback, 1, "no_memory");
  metrics.Set(Gauge::kSpecPvProvisionalTokens, 3);
  metrics.Observe(Histogram::kSpecPvHiddenCosine, 0.99, "4");
  metrics.Reset();
  EXPECT_TRUE(metrics.Snapshot().empty());
  EXPECT_EQ(metrics.Get(Gauge::kSpecPvProvisionalTokens), 0);
  EXPECT_EQ(metrics.Get(Histogram::kSpecPvHiddenCosine, "4").count, 0);
}

}  // namespace
}  // namespace talon
