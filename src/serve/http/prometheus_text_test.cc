#include "serve/http/prometheus_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace talon {
namespace {

// The text as a scraper sees it.
struct Scrape {
  std::vector<std::string> names;           // in order of their TYPE lines
  std::map<std::string, std::string> type;  // by name
  std::map<std::string, std::string> help;
  std::map<std::string, double> samples;  // by name{labels}
  std::vector<std::string> sample_order;
};

Scrape ParseText(const std::string& text) {
  Scrape out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    if (line.starts_with("# ")) {
      std::string hash, kind, name, rest;
      words >> hash >> kind >> name;
      std::getline(words >> std::ws, rest);
      if (kind == "TYPE") out.names.push_back(name);
      auto& facts = kind == "TYPE" ? out.type : out.help;
      EXPECT_TRUE(facts.emplace(name, rest).second) << line;
      continue;
    }
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    const std::string key = line.substr(0, space);
    EXPECT_TRUE(out.samples.emplace(key, std::stod(line.substr(space + 1))).second) << line;
    out.sample_order.push_back(key);
  }
  return out;
}

TEST(PrometheusTextTest, NamesHaveThePrefixHelpAndTypeAndAreSorted) {
  const Scrape scrape = ParseText(PrometheusText(Metrics()));
  EXPECT_GT(scrape.names.size(), 20);
  EXPECT_TRUE(std::is_sorted(scrape.names.begin(), scrape.names.end()));
  for (const std::string& name : scrape.names) {
    EXPECT_TRUE(name.starts_with("talon_"));
    EXPECT_FALSE(scrape.help.at(name).empty());
  }
  EXPECT_EQ(scrape.type.at("talon_kv_evictions_total"), "counter");
  EXPECT_EQ(scrape.type.at("talon_requests_running"), "gauge");
  EXPECT_EQ(scrape.type.at("talon_request_ttft_seconds"), "histogram");
  EXPECT_EQ(scrape.samples.at("talon_kv_evictions_total"), 0);
  EXPECT_EQ(scrape.samples.at("talon_request_ttft_seconds_count"), 0);
  EXPECT_EQ(scrape.samples.at("talon_request_ttft_seconds_bucket{le=\"+Inf\"}"), 0);
}

TEST(PrometheusTextTest, CountersAndGaugesCarryTheirLabel) {
  Metrics metrics;
  metrics.Add(Counter::kRequests, 3, "stop");
  metrics.Add(Counter::kRequests, 1, "length");
  metrics.Add(Counter::kRequestGeneratedTokens, int64_t{1} << 40);
  metrics.Set(Gauge::kKvBlocks, 17, "free");
  metrics.Set(Gauge::kKvUsageRatio, 0.25);
  const Scrape scrape = ParseText(PrometheusText(metrics));
  EXPECT_EQ(scrape.samples.at("talon_requests_total{finish_reason=\"stop\"}"), 3);
  EXPECT_EQ(scrape.samples.at("talon_requests_total{finish_reason=\"length\"}"), 1);
  EXPECT_EQ(scrape.samples.at("talon_request_generated_tokens_total"), std::pow(2.0, 40));
  EXPECT_EQ(scrape.samples.at("talon_kv_blocks{state=\"free\"}"), 17);
  EXPECT_EQ(scrape.samples.at("talon_kv_usage_ratio"), 0.25);
}

TEST(PrometheusTextTest, HistogramBucketsAreCumulative) {
  Metrics metrics;
  for (const double length : {1.0, 1.0, 3.0, 17.0, 40.0}) {
    metrics.Observe(Histogram::kSpecAcceptLength, length, "NGRAM");
  }
  const Scrape scrape = ParseText(PrometheusText(metrics));
  const std::string name = "talon_spec_accept_length";
  const auto bucket = [&](const std::string& end) {
    return scrape.samples.at(name + "_bucket{drafter=\"NGRAM\",le=\"" + end + "\"}");
  };
  EXPECT_EQ(bucket("1"), 2);
  EXPECT_EQ(bucket("2"), 2);
  EXPECT_EQ(bucket("3"), 3);
  EXPECT_EQ(bucket("16"), 3);
  EXPECT_EQ(bucket("17"), 4);
  EXPECT_EQ(bucket("+Inf"), 5);
  EXPECT_EQ(scrape.samples.at(name + "_count{drafter=\"NGRAM\"}"), 5);
  EXPECT_EQ(scrape.samples.at(name + "_sum{drafter=\"NGRAM\"}"), 62);
  const auto buckets = std::count_if(
      scrape.sample_order.begin(), scrape.sample_order.end(),
      [&](const std::string& sample) { return sample.starts_with(name + "_bucket"); });
  EXPECT_EQ(buckets, 18);
}

TEST(PrometheusTextTest, RemoteCallsCarryMethodAndCode) {
  Metrics metrics;
  metrics.Observe(Histogram::kRemoteRpcSeconds, 0.5, "VerifyDrafts", "ok");
  metrics.Observe(Histogram::kRemoteRpcSeconds, 2, "VerifyDrafts", "ok");
  metrics.Observe(Histogram::kRemoteRpcSeconds, 4, "VerifyDrafts", "unavailable");
  metrics.Observe(Histogram::kRemoteRpcSeconds, 8, "Ping", "ok");
  const Scrape scrape = ParseText(PrometheusText(metrics));
  const auto sample = [&](const std::string& rest) {
    return scrape.samples.at("talon_remote_rpc_seconds" + rest);
  };
  EXPECT_EQ(sample(R"(_sum{method="VerifyDrafts",code="ok"})"), 2.5);
  EXPECT_EQ(sample(R"(_bucket{method="VerifyDrafts",code="ok",le="0.5"})"), 1);
  EXPECT_EQ(sample(R"(_count{method="VerifyDrafts",code="unavailable"})"), 1);
  EXPECT_EQ(sample(R"(_sum{method="Ping",code="ok"})"), 8);
}

TEST(PrometheusTextTest, BucketEndsArePrintedShort) {
  Metrics metrics;
  metrics.Observe(Histogram::kRequestTtftSeconds, 0.0002);
  const Scrape scrape = ParseText(PrometheusText(metrics));
  EXPECT_EQ(scrape.samples.at("talon_request_ttft_seconds_bucket{le=\"0.00025\"}"), 1);
  EXPECT_EQ(scrape.samples.at("talon_request_ttft_seconds_sum"), 0.0002);
}

TEST(PrometheusTextTest, LabelValuesAreEscaped) {
  Metrics metrics;
  metrics.Add(Counter::kSpecFallback, 1, "a\"b\\c\nd");
  const Scrape scrape = ParseText(PrometheusText(metrics));
  EXPECT_EQ(scrape.samples.at(R"(talon_spec_fallback_total{reason="a\"b\\c\nd"})"), 1);
}

}  // namespace
}  // namespace talon
