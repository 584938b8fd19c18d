#include "apps/bench/longcontext.h"

#include <gtest/gtest.h>

#include <sstream>

#include "apps/bench/longcontext_figures.h"
#include "apps/bench/longcontext_recall.h"
#include "apps/bench/longcontext_report.h"
#include "apps/bench/roofline.h"
#include "base/json.h"

namespace talon {
namespace {

const std::vector<std::string> kModes = {"plain", "eagle3", "eagle3+specpv-exact",
                                         "eagle3+specpv-fast"};

std::vector<Variant> SomeVariants() { return *ParseVariants(kModes, {512, 2048}, 16); }

// A run of `tokens` emitted at `rate` tokens per second.
Sample SampleOf(std::vector<int32_t> tokens, double rate) {
  Sample sample{.tokens = std::move(tokens),
                .kv_bytes = 1000,
                .kv_bytes_per_token = 10,
                .key_summaries = true};
  sample.stats.emitted = static_cast<int64_t>(sample.tokens.size());
  sample.stats.decode_seconds = static_cast<double>(sample.tokens.size()) / rate;
  sample.stats.passes = 2;
  sample.full = {.seconds = {0.002, 0.004}, .rows = 20, .prefix_tokens = 800};
  sample.stats.prefix_tokens_read = 800;
  return sample;
}

Sample PartialSampleOf(std::vector<int32_t> tokens, double rate, double step_seconds) {
  Sample sample = SampleOf(std::move(tokens), rate);
  sample.partial = {.seconds = {step_seconds, step_seconds, 9.0}, .rows = 30, .prefix_tokens = 300};
  sample.stats.prefix_tokens_read += 300;
  sample.stats.passes += 3;
  sample.refreshes = {{"capacity", 1}, {"init", 1}};
  sample.checked = {10, 20, 0, 0, 0, 0, 0, 0};
  sample.disagreed = {0, 5, 0, 0, 0, 0, 0, 0};
  sample.kv_bytes = 1070;
  return sample;
}

// Plain at 10 tokens/s, eagle3 at 20, the others at 40.
ContextRuns SomeRuns(int context, double step_seconds) {
  ContextRuns runs{.context = context, .samples = {{SampleOf({1, 2, 3, 4}, 10)}}};
  runs.samples.push_back({SampleOf({1, 2, 3, 4}, 20)});
  for (int i = 0; i < 4; ++i) {
    runs.samples.push_back({PartialSampleOf({1, 2, 3, 4}, 40, step_seconds)});
  }
  return runs;
}

void ExpectFits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(LongContextVariants, BudgetsApplyToPartialModes) {
  const auto variants = SomeVariants();
  ASSERT_EQ(variants.size(), 6U);
  EXPECT_EQ(variants[0].drafter.Name(), "NONE");
  EXPECT_EQ(variants[1].Label(), "eagle3");
  EXPECT_EQ(variants[3].Label(), "eagle3 exact 2048");
  EXPECT_EQ(variants[4].Label(), "eagle3 fast 512");
  EXPECT_EQ(variants[4].drafter.Name(), "EAGLE3");
  EXPECT_TRUE(variants[3].exact());
  EXPECT_FALSE(variants[4].exact());
  EXPECT_EQ(FullTwinOf(variants, variants[4]), 1);
}

TEST(LongContextVariants, SettingsFollowTheVariant) {
  const auto variants = SomeVariants();
  EXPECT_FALSE(SpecPvOf({.enabled = true}, variants[1]).enabled);
  const SpecPvConfig fast = SpecPvOf({.sink_blocks = 3}, variants[5]);
  EXPECT_TRUE(fast.enabled);
  EXPECT_EQ(fast.mode, SpecPvMode::kFast);
  EXPECT_EQ(fast.retrieval_blocks, 128);
  EXPECT_EQ(fast.sink_blocks, 3);
}

TEST(LongContextVariants, PartsOfAListAndPlainMayBePartial) {
  const auto variants =
      ParseVariants({"plain", "eagle3+suffix+specpv-fast", "plain+specpv-exact"}, {512}, 16);
  ASSERT_TRUE(variants.ok()) << variants.status().message();
  EXPECT_EQ((*variants)[1].drafter.Name(), "EAGLE3,SUFFIX");
  EXPECT_EQ(FullTwinOf(*variants, (*variants)[1]), -1);
  EXPECT_EQ(FullTwinOf(*variants, (*variants)[2]), 0);
}

TEST(LongContextVariants, BadOnesAreRefused) {
  const auto message = [](const std::vector<std::string>& modes, const std::vector<int>& budgets) {
    return ParseVariants(modes, budgets, 16).status().message();
  };
  EXPECT_NE(message({"eagle3"}, {512}).find("first must be plain"), std::string::npos);
  EXPECT_NE(message({"plain+specpv-fast"}, {512}).find("first must be plain"), std::string::npos);
  EXPECT_NE(message({}, {512}).find("first must be plain"), std::string::npos);
  EXPECT_NE(message({"plain", "magic"}, {512}).find("magic"), std::string::npos);
  EXPECT_NE(message({"plain", "eagle3+specpv"}, {512}).find("+specpv-exact"), std::string::npos);
  EXPECT_NE(message({"plain", "eagle3+specpv-fst"}, {512}).find("eagle3+specpv-fst"),
            std::string::npos);
  EXPECT_NE(message({"plain", "eagle3+specpv-fast"}, {500}).find("500"), std::string::npos);
  EXPECT_NE(message({"plain", "eagle3+specpv-fast"}, {}).find("budgets"), std::string::npos);
}

TEST(LongContextFigures, RatiosAndReads) {
  const Json json = ContextJson(SomeVariants(), SomeRuns(8192, 0.001), /*lossless=*/true);
  const Json& exact = json["rows"][2];
  EXPECT_DOUBLE_EQ(exact["ratio_to_plain"], 4.0);
  EXPECT_DOUBLE_EQ(exact["ratio_to_full"], 2.0);
  EXPECT_DOUBLE_EQ(exact["kv_bytes_read_per_step"], 1100 * 10 / 5.0);
  EXPECT_DOUBLE_EQ(exact["partial"]["kv_bytes_read"], 1000.0);
  EXPECT_DOUBLE_EQ(exact["partial"]["ms"], 1.0);  // the median: one slow step does not count
  EXPECT_EQ(exact["refreshes"]["capacity"], 1);
  EXPECT_TRUE(exact["must_be_identical"].get<bool>());
  EXPECT_FALSE(json["rows"][4]["must_be_identical"].get<bool>());
}

TEST(LongContextFigures, OnlyModesThatMustAgreeAreReported) {
  ContextRuns runs = SomeRuns(8192, 0.001);
  for (size_t v = 2; v < 6; ++v) runs.samples[v][0].tokens.back() = 9;
  const Json json = Json::array({ContextJson(SomeVariants(), runs, /*lossless=*/true)});
  const auto lines = Differences(json, Json::array());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "eagle3 exact 512 at 8192 tokens differs from plain decoding");
  const Json lossy = Json::array({ContextJson(SomeVariants(), runs, /*lossless=*/false)});
  EXPECT_TRUE(Differences(lossy, Json::array()).empty());
}

TEST(LongContextFigures, RecallDifferencesOfExactModesAreReported) {
  const Json bucket = {{"tokens", 4096}, {"prompts", 3}, {"right", 2}, {"different", 1}};
  Json recall = {{{"label", "eagle3 exact 512"}, {"must_be_identical", true}},
                 {{"label", "eagle3 fast 512"}, {"must_be_identical", false}}};
  for (Json& row : recall) row["buckets"] = Json::array({bucket});
  const auto lines = Differences(Json::array(), recall);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("eagle3 exact 512"), std::string::npos);
}

TEST(LongContextFigures, FlatnessComparesWith4096) {
  const auto variants = SomeVariants();
  Json contexts = Json::array();
  for (const auto& [context, seconds] : {std::pair(1024, 0.010), {4096, 0.002}, {30000, 0.003}}) {
    contexts.push_back(ContextJson(variants, SomeRuns(context, seconds), true));
  }
  const Json flatness = FlatnessJson(contexts);
  ASSERT_EQ(flatness.size(), 4U);
  EXPECT_EQ(flatness[0]["base_context"], 4096);
  EXPECT_EQ(flatness[0]["context"], 30000);
  EXPECT_DOUBLE_EQ(flatness[0]["ratio"], 1.5);
  EXPECT_TRUE(FlatnessJson(Json::array({contexts[0]})).empty());
  const Json short_ones = FlatnessJson(Json::array({contexts[0], contexts[1]}));
  EXPECT_EQ(short_ones[0]["base_context"], 1024);
  EXPECT_EQ(short_ones[0]["context"], 4096);
  const std::string report = FlatnessReport(flatness);
  EXPECT_NE(report.find("2048"), std::string::npos);
  EXPECT_EQ(report.find("exact 512"), std::string::npos);
  ExpectFits(report);
}

TEST(LongContextFigures, AgreementAndMemory) {
  const auto variants = SomeVariants();
  const std::vector<ContextRuns> runs = {SomeRuns(4096, 0.002), SomeRuns(8192, 0.002)};
  const Json agreement = AgreementJson(variants, runs);
  ASSERT_EQ(agreement.size(), 4U);
  EXPECT_EQ(agreement[0]["distances"][1]["checked"], 40);
  EXPECT_EQ(agreement[0]["distances"][1]["disagreed"], 10);
  EXPECT_NE(AgreementReport(agreement).find("75.0"), std::string::npos);
  const Json memory = MemoryJson(variants, runs);
  ASSERT_EQ(memory.size(), 8U);
  EXPECT_DOUBLE_EQ(memory[0]["ratio"], 1.07);
}

TEST(LongContextFigures, ReportsFitATerminal) {
  const auto variants = SomeVariants();
  ContextRuns runs = SomeRuns(30000, 0.012);
  runs.samples[3][0].refreshes = {
      {"capacity", 12}, {"init", 1}, {"interval", 2}, {"finish", 1}, {"drift", 1}};
  runs.samples[3][0].checked.fill(100000);
  runs.samples[3][0].disagreed.fill(1);
  const Json context = ContextJson(variants, runs, true);
  ExpectFits(ContextReport(context));
  EXPECT_NE(ContextReport(context).find("init 1 cap 12 int 2 fin 1 drift 1"), std::string::npos);
  const std::string agreement = AgreementReport(AgreementJson(variants, {runs}));
  ExpectFits(agreement);
  EXPECT_NE(agreement.find("99.9"), std::string::npos);  // not rounded up to 100
  ExpectFits(MemoryReport(MemoryJson(variants, {runs})));
}

TEST(Roofline, BytesAndOperations) {
  ModelConfig model;
  model.hidden_size = 8;
  model.num_layers = 2;
  model.num_heads = 2;
  model.num_kv_heads = 1;
  model.head_dim = 4;
  model.intermediate_size = 10;
  model.vocab_size = 100;
  EXPECT_DOUBLE_EQ(LayerFlops(model), 2 * 2 * (8 * 16 + 8 * 8 + 3 * 8 * 10));
  EXPECT_DOUBLE_EQ(HeadFlops(model), 1600);
  EXPECT_DOUBLE_EQ(AttentionFlops(model, 10), 4 * 2 * 8 * 10);
  const Work work = WorkOf(model, {.passes = 2,
                                   .rows = 6,
                                   .prefix_tokens = 20,
                                   .weight_bytes = 1000,
                                   .kv_bytes_per_token = 32});
  EXPECT_DOUBLE_EQ(work.weight_bytes, 2000);
  EXPECT_DOUBLE_EQ(work.kv_bytes, 640);
  EXPECT_DOUBLE_EQ(work.flops, 6 * (1728 + 1600 + 640));
  EXPECT_DOUBLE_EQ(WorkOf(model, {}).flops, 0);
  const Bound memory = BoundOf(work, {.bytes_per_second = 100, .flops_per_second = 1e6});
  EXPECT_TRUE(memory.by_memory());
  EXPECT_DOUBLE_EQ(memory.seconds(), 26.4);
  EXPECT_FALSE(BoundOf(work, {.bytes_per_second = 1e9, .flops_per_second = 10}).by_memory());
}

TEST(Roofline, PartsAddUpToTheTimePerToken) {
  ModelConfig model;
  model.num_layers = 1;
  const RooflineInput input{.model = model,
                            .weight_bytes = 100,
                            .peaks = {.bytes_per_second = 1e6, .flops_per_second = 1e6}};
  const ContextRuns runs = SomeRuns(8192, 0.001);
  const Json json = RooflineJson(input, SomeVariants(), runs);
  ASSERT_EQ(json["rows"].size(), 2U + 4 * 2);
  const Json &partial = json["rows"][2], &full = json["rows"][3];
  EXPECT_EQ(partial["part"], "partial");
  EXPECT_EQ(full["part"], "full");
  EXPECT_DOUBLE_EQ(partial["kv_bytes"], 300 * 10 / 4.0);
  EXPECT_DOUBLE_EQ(full["kv_bytes"], 800 * 10 * (17.0 / 16) / 4);
  const Sample& sample = runs.samples[2][0];
  EXPECT_DOUBLE_EQ(partial["measured_ms"].get<double>() + full["measured_ms"].get<double>(),
                   (sample.partial.TotalSeconds() + sample.full.TotalSeconds()) * 1e3 / 4);
  const Json context = ContextJson(SomeVariants(), runs, true);
  const std::string report = RooflineReport(
      json, context,
      {{"bandwidth_gb_per_second", 53.0}, {"matrix_gflops", 663.0}, {"matrix_kind", "bf16"}});
  EXPECT_NE(report.find("eagle3 exact 512 replay"), std::string::npos);
  ExpectFits(report);
}

TEST(Recall, AnswersAndBuckets) {
  EXPECT_TRUE(AnswersRight(" 599 129.\n", " 599 129"));
  EXPECT_TRUE(AnswersRight("599 129", " 599 129"));
  EXPECT_FALSE(AnswersRight(" 599 12", " 599 129"));
  EXPECT_FALSE(AnswersRight("", " 599 129"));
  EXPECT_EQ(RecallBucketOf(1024), 1024);
  EXPECT_EQ(RecallBucketOf(1), 1);
  EXPECT_EQ(RecallBucketOf(990), 1024);
  EXPECT_EQ(RecallBucketOf(1060), 1024);
  EXPECT_EQ(RecallBucketOf(28400), 32768);
}

TEST(Recall, TableHasOneColumnPerBucket) {
  const Json buckets = {{{"tokens", 2048}, {"prompts", 6}, {"right", 5}, {"different", 0}},
                        {{"tokens", 32768}, {"prompts", 6}, {"right", 4}, {"different", 0}}};
  const Json recall = {{{"label", "eagle3"}, {"budget", 0}, {"buckets", buckets}},
                       {{"label", "eagle3 fast 512"}, {"budget", 512}, {"buckets", buckets}}};
  const std::string report = RecallReport(recall);
  EXPECT_NE(report.find("eagle3 (full)"), std::string::npos);
  EXPECT_NE(report.find("32768"), std::string::npos);
  EXPECT_NE(report.find("4/6"), std::string::npos);
  ExpectFits(report);
}

}  // namespace
}  // namespace talon
