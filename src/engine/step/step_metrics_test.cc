// What a step counts, times and traces.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "compute/test_device.h"
#include "engine/engine.h"
#include "engine/test_engine.h"
#include "observe/trace.h"

namespace talon {
namespace {

EngineOptions MetricsOptions() {
  EngineOptions options{
      .kv_dtype = DType::kF32, .max_length = 128, .max_sequences = 3, .prefill_chunk = 20};
  options.step.budget = {.max_nodes = 12, .max_depth = 6};
  return options;
}

EngineOptions PartialMetricsOptions(SpecPvMode mode) {
  EngineOptions options = MetricsOptions();
  options.block_size = 8;
  options.step.specpv = {.enabled = true,
                         .block_size = 8,
                         .sink_blocks = 1,
                         .retrieval_blocks = 1,
                         .window_blocks = 1,
                         .buffer_tokens = 24,
                         .partial_threshold = 32,
                         .full_refresh_interval = 4,
                         .mode = mode};
  return options;
}

std::vector<GenerateRequest> MetricsRequests() {
  std::mt19937 random(3);
  std::vector<GenerateRequest> requests(4);
  for (GenerateRequest& request : requests) {
    request.prompt = RandomPrompt(random, 30, kVocabulary);
    request.sampling.max_tokens = 24;
  }
  requests[1].speculate = false;
  return requests;
}

// An engine whose drafter knows most of what the requests will say.
std::unique_ptr<Engine> SpeculatingEngine(const EngineOptions& options) {
  const std::vector<GenerateRequest> requests = MetricsRequests();
  EngineOptions plain = options;
  plain.step.specpv = {};
  const auto results = RunBatch(Small().MakeEngine(plain).get(), requests);
  std::vector<std::vector<int32_t>> answers;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers.push_back(requests[i].prompt);
    for (const int32_t id : results[i].TokenIds()) answers.back().push_back(id);
  }
  return Small().MakeEngine(options, std::make_unique<OracleDrafter>(answers, kVocabulary, 0.8, 1));
}

RequestStats Sum(const std::vector<GenerateResult>& results, size_t first, size_t last) {
  RequestStats sum;
  for (size_t i = first; i < last; ++i) {
    sum.passes += results[i].stats.passes;
    sum.emitted += results[i].stats.emitted;
    sum.rows += results[i].stats.rows;
  }
  return sum;
}

TEST(StepMetricsTest, HistogramsAgreeWithTheRequests) {
  const auto engine = SpeculatingEngine(MetricsOptions());
  const auto results = RunBatch(engine.get(), MetricsRequests());
  const Metrics& metrics = engine->metrics();
  const RequestStats all = Sum(results, 0, results.size());
  const RequestStats plain = Sum(results, 1, 2);
  const Distribution drafted = metrics.Get(Histogram::kSpecAcceptLength, "ORACLE");
  EXPECT_EQ(drafted.count, all.passes - plain.passes);
  EXPECT_EQ(drafted.sum, static_cast<double>(all.emitted - plain.emitted));
  EXPECT_GT(drafted.Mean(), 1.5);
  const Distribution undrafted = metrics.Get(Histogram::kSpecAcceptLength, "none");
  EXPECT_EQ(undrafted.count, plain.passes);
  EXPECT_EQ(undrafted.Mean(), 1);
  const Distribution nodes = metrics.Get(Histogram::kSpecTreeNodes);
  EXPECT_EQ(nodes.count, all.passes);
  EXPECT_EQ(nodes.sum, static_cast<double>(all.rows));
}

TEST(StepMetricsTest, TimesAreOfSteps) {
  const auto engine = SpeculatingEngine(MetricsOptions());
  const auto results = RunBatch(engine.get(), MetricsRequests());
  const Metrics& metrics = engine->metrics();
  const Distribution full = metrics.Get(Histogram::kSpecVerifySeconds, "full");
  EXPECT_GT(full.count, 0);
  EXPECT_GT(full.sum, 0);
  // Several sequences share a step.
  EXPECT_LT(full.count, metrics.Get(Counter::kSpecVerifyPasses, "full"));
  const Distribution draft = metrics.Get(Histogram::kSpecDraftSeconds, "ORACLE");
  EXPECT_GE(draft.count, full.count);
  EXPECT_GT(draft.sum, 0);
}

TEST(StepMetricsTest, PlainDecodingHasNoDraftMetrics) {
  const auto engine = Small().MakeEngine(MetricsOptions());
  const auto results = RunBatch(engine.get(), MetricsRequests());
  const auto families = engine->metrics().Collect();
  for (const MetricFamily& family : families) {
    EXPECT_STRNE(family.info->name, "spec_draft_seconds");
    if (family.info->name != std::string("spec_verify_seconds")) continue;
    ASSERT_EQ(family.series.size(), 1);
    EXPECT_EQ(family.series[0].label, "plain");
  }
  EXPECT_EQ(engine->metrics().Get(Gauge::kNworAcceptanceRatio), 1);
}

TEST(StepMetricsTest, AcceptanceRatioIsCommittedOfStaged) {
  const auto engine = SpeculatingEngine(MetricsOptions());
  RunBatch(engine.get(), MetricsRequests());
  const Metrics& metrics = engine->metrics();
  const auto staged = static_cast<double>(metrics.Total(Counter::kNworStagedTokens));
  const auto committed = static_cast<double>(metrics.Total(Counter::kNworTokensCommitted));
  EXPECT_DOUBLE_EQ(metrics.Get(Gauge::kNworAcceptanceRatio), committed / staged);
  EXPECT_LT(committed, staged);
}

TEST(StepMetricsTest, ProvisionalTokensAreCountedOnceAndLeaveTheGauge) {
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    const auto engine = SpeculatingEngine(PartialMetricsOptions(mode));
    const auto results = RunBatch(engine.get(), MetricsRequests());
    const Metrics& metrics = engine->metrics();
    EXPECT_GT(metrics.Get(Histogram::kSpecVerifySeconds, "partial").count, 0);
    EXPECT_EQ(metrics.Get(Histogram::kSpecAcceptLength, "ORACLE").sum +
                  metrics.Get(Histogram::kSpecAcceptLength, "none").sum,
              static_cast<double>(Sum(results, 0, results.size()).emitted));
    EXPECT_EQ(metrics.Get(Gauge::kSpecPvProvisionalTokens), 0);
  }
}

// Rows of partial passes go to tails or are rejected; the rows of a trunk are staged once more.
TEST(StepMetricsTest, StagedRowsAddUpUnderPartialVerification) {
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    const auto engine = SpeculatingEngine(PartialMetricsOptions(mode));
    const auto results = RunBatch(engine.get(), MetricsRequests());
    const Metrics& metrics = engine->metrics();
    const int64_t staged = metrics.Total(Counter::kNworStagedTokens);
    const int64_t committed = metrics.Total(Counter::kNworTokensCommitted);
    const auto token_bytes = static_cast<int64_t>(engine->kv().shape().BytesPerToken());
    EXPECT_EQ(staged, Sum(results, 0, results.size()).rows);
    EXPECT_EQ(staged, committed + metrics.Total(Counter::kNworTokensRejected));
    EXPECT_GT(metrics.Get(Counter::kNworTokensCommitted, "tail"), 10);
    EXPECT_EQ(metrics.Get(Counter::kNworTokensCommitted, "blocks") * token_bytes,
              metrics.Get(Counter::kKvBytesWritten, "commit"));
    EXPECT_EQ(metrics.Get(Counter::kKvBytesStaged, "pass"), staged * token_bytes);
    EXPECT_DOUBLE_EQ(metrics.Get(Gauge::kNworAcceptanceRatio),
                     static_cast<double>(committed) / static_cast<double>(staged));
    EXPECT_GT(metrics.Get(Gauge::kNworAcceptanceRatio), 0.2);
    EXPECT_LT(metrics.Get(Gauge::kNworAcceptanceRatio), 0.9);
  }
}

TEST(StepMetricsTest, StagesOfAStepAreTraced) {
  const std::string path = testing::TempDir() + "/talon_step_trace.json";
  const auto engine = SpeculatingEngine(MetricsOptions());
  auto tracer = Tracer::Open(path);
  ASSERT_TRUE(tracer.ok()) << tracer.status().message();
  SetActiveTracer(tracer->get());
  RunBatch(engine.get(), MetricsRequests());
  SetActiveTracer(nullptr);
  ASSERT_TRUE((*tracer)->Close().ok());
  const Result<Json> events = ReadJsonFile(path);
  std::remove(path.c_str());
  ASSERT_TRUE(events.ok()) << events.status().message();
  std::vector<std::string> stages;
  int steps = 0;
  int staging_steps = 0;
  double staging = 0, verifying = 0;  // microseconds of steps that stage
  Json staged;
  for (const Json& event : *events) {
    if (event["ph"] != "X") continue;
    if (event["name"] != "Step") {
      stages.push_back(event["name"]);
      if (event["name"] == "NWOR_staging") staged = event;
      if (event["name"] == "Verify" && !staged.is_null()) {
        EXPECT_GE(staged["ts"], event["ts"]);
        staging += staged["dur"].get<double>();
        verifying += event["dur"].get<double>();
        staged = nullptr;
      }
      continue;
    }
    ++steps;
    // A range is written at its end, so what is inside another comes first. Prompts stage nothing.
    std::vector<std::string> expected = {"Propose", "Plan",        "NWOR_staging", "Verify",
                                         "Accept",  "NWOR_commit", "Observe"};
    if (event["args"]["sequences"] == 0) std::erase(expected, "NWOR_staging");
    staging_steps += event["args"]["sequences"] > 0 ? 1 : 0;
    EXPECT_EQ(stages, expected);
    stages.clear();
  }
  EXPECT_GT(staging_steps, 10);
  if (TestDeviceIsHost()) {  // on a GPU the range has the launch only
    EXPECT_GT(staging, 0.5 * verifying) << "the pass stages the rows";
  }
  EXPECT_GT(steps, staging_steps);
  EXPECT_TRUE(stages.empty());
}

}  // namespace
}  // namespace talon
