#include "engine/ranks/random_cases.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/math.h"
#include "engine/test_engine.h"
#include "model/heads/test_eagle.h"
#include "model/heads/test_heads.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

constexpr uint64_t kModelSeed = 27;
constexpr int kMaxLength = 240;
constexpr int kMaxSequences = 6;
constexpr int kMaxNodes = 64;
constexpr int kMaxDepth = 20;
constexpr const char* kOracle = "ORACLE";
constexpr std::array kDrafters = {kOracle, "NGRAM",      kOracle,  "SUFFIX",
                                  kOracle, "STANDALONE", "EAGLE3", "EAGLE3,SUFFIX",
                                  "EAGLE", "DFLASH",     "DSPARK", "JETSPEC"};

int Between(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

SamplingParams RandomSampling(std::mt19937& random, int max_tokens) {
  SamplingParams params;
  params.max_tokens = Between(random, 1, max_tokens);
  params.seed = random();
  if (random() % 2 == 0) params.temperature = 0.2f + static_cast<float>(random() % 20) / 10;
  if (random() % 3 == 0) params.top_k = Between(random, 1, 50);
  if (random() % 3 == 0) params.top_p = 0.3f + static_cast<float>(random() % 7) / 10;
  if (random() % 3 == 0) params.repetition_penalty = 1.0f + static_cast<float>(random() % 10) / 10;
  if (random() % 2 == 0) params.logprobs = Between(random, 0, 2);
  return params;
}

std::vector<GenerateRequest> RandomRequests(std::mt19937& random, bool partial) {
  std::vector<GenerateRequest> requests(Between(random, 1, partial ? 3 : 6));
  for (GenerateRequest& request : requests) {
    const int length = partial ? Between(random, 40, 120) : Between(random, 1, 50);
    request.prompt = RandomPrompt(random, length, kVocabulary);
    request.sampling = RandomSampling(random, partial ? 48 : 24);
  }
  // Some begin alike, so that the prefix cache has work.
  for (size_t i = 1; i < requests.size() && random() % 2 == 0; ++i) {
    auto& prompt = requests[i].prompt;
    prompt.insert(
        prompt.begin(), requests[0].prompt.begin(),
        requests[0].prompt.begin() + std::min<ptrdiff_t>(50, std::ssize(requests[0].prompt)));
  }
  return requests;
}

// Budgets so small that fifty tokens are a long prefix, but no smaller than gpt_oss's windows.
SpecPvConfig RandomView(std::mt19937& random, int block_size, bool exact) {
  SpecPvConfig config{.enabled = true,
                      .block_size = block_size,
                      .sink_blocks = Between(random, 0, 1),
                      .retrieval_blocks = Between(random, 0, 3),
                      .window_blocks = 16 / block_size,
                      .buffer_tokens = kMaxNodes + kMaxDepth + 20,
                      .partial_threshold = 40,
                      .full_refresh_interval = Between(random, 1, 8),
                      .mode = exact ? SpecPvMode::kExact : SpecPvMode::kFast,
                      .selector = static_cast<SpecPvSelector>(random() % 4),
                      .reduce = static_cast<SpecPvReduce>(random() % 3)};
  // Other devices have no scores of attention, and would say that they fall back.
  if (config.selector == SpecPvSelector::kAttention && !TestDeviceIsHost()) {
    config.selector = SpecPvSelector::kQuest;
  }
  if (random() % 4 == 0) config.shadow_rate = 0.5f;
  if (random() % 4 == 0) config.error_target = 0.05f;
  return config;
}

// Tokens for little more than the longest request, so that others are preempted.
int SmallPool(const std::vector<GenerateRequest>& requests) {
  int longest = 0;
  for (const GenerateRequest& request : requests) {
    const int prompt = static_cast<int>(request.prompt.size());
    longest = std::max(longest, prompt + request.sampling.max_tokens);
  }
  return RoundUp(longest, 16) + 32;
}

std::vector<std::vector<int32_t>> AnswersOf(const std::vector<GenerateRequest>& requests,
                                            const std::vector<GenerateResult>& results) {
  std::vector<std::vector<int32_t>> answers;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers.push_back(requests[i].prompt);
    const auto ids = results[i].TokenIds();
    answers.back().insert(answers.back().end(), ids.begin(), ids.end());
  }
  return answers;
}

}  // namespace

std::string RanksVariant::Name() const {
  const char* rows = activations == ActivationFormat::kFp8 ? "_fp8_rows" : "";
  return fmt::format("{}_{}{}_{}", family, WeightFormatName(weights), rows, DTypeName(kv_dtype));
}

std::vector<RanksVariant> RanksVariants() {
  return {{.family = "llama"},
          {.family = "llama", .weights = WeightFormat::kInt8},
          {.family = "qwen3", .weights = WeightFormat::kInt4},
          {.family = "qwen3", .weights = WeightFormat::kFp8},
          {.family = "llama", .weights = WeightFormat::kFp8, .activations = ActivationFormat::kFp8},
          {.family = "qwen3", .kv_dtype = DType::kF32},
          {.family = "llama", .kv_dtype = DType::kF8E4M3},
          {.family = "qwen3", .kv_dtype = DType::kI8},
          {.family = "gpt_oss", .weights = WeightFormat::kInt8},
          {.family = "gpt_oss_mxfp4"},
          {.family = "qwen3_moe"}};
}

int NumRanksCases(int usual) { return WantedCases(TestRounds(usual)).count(); }

Json RanksModelConfig(const std::string& family) {
  Json config = family == "llama" || family == "qwen3" ? SmallConfig() : ExpertsConfig(family);
  if (family == "qwen3") config["architectures"] = {"Qwen3ForCausalLM"};
  config.update({{"vocab_size", kVocabulary},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 16},
                 {"hidden_size", 64}});
  if (!family.starts_with("gpt_oss")) config["intermediate_size"] = 160;
  return config;
}

RandomCases::RandomCases(const RanksVariant& variant) : variant_(variant) {
  const Json json = RanksModelConfig(variant.family);
  WriteModel(model_dir(), json, DType::kBF16, kModelSeed);
  const ModelConfig config = LoadModelConfig(model_dir()).value();
  // The target itself, so that drafts are accepted.
  WriteModel(heads_["STANDALONE"].path(), json, DType::kBF16, kModelSeed);
  MakeTestHead(config).Write(heads_["EAGLE3"].path());
  // These share the target's output matrix.
  for (const DraftKind kind :
       {DraftKind::kEagle, DraftKind::kDflash, DraftKind::kDspark, DraftKind::kJetspec}) {
    WriteTestHead(heads_[DrafterKindName(DrafterFor(kind))].path(), kind, config, kModelSeed);
  }
}

LoadOptions RandomCases::load_options() const {
  return {.weights = variant_.weights,
          .activations = variant_.activations,
          .max_rows = 600,
          .max_output_rows = 500};
}

RandomCases::Case RandomCases::Draw(int index) const {
  const std::string name = fmt::format("{} {}", variant_.Name(), index);
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 random(seed);
  const bool partial = index % 3 != 2;
  const bool exact = index % 3 == 0;
  Case drawn{.requests = RandomRequests(random, partial),
             .options = {.kv_dtype = variant_.kv_dtype,
                         .block_size = random() % 2 == 0 ? 16 : 8,
                         .max_length = kMaxLength,
                         .max_sequences = Between(random, 1, kMaxSequences),
                         .prefill_chunk = Between(random, 1, 50),
                         .prefix_cache = random() % 2 == 0},
             .drafter = kDrafters[random() % kDrafters.size()],
             .seed = index};
  if (index < 3) {  // in few cases, too, drafts are accepted and views are partial
    drawn.drafter = kOracle;
    for (GenerateRequest& request : drawn.requests) request.sampling.max_tokens = 48;
  }
  drawn.options.kv_audit = random() % 8 == 0;
  if (random() % 4 == 0) drawn.options.kv_tokens = SmallPool(drawn.requests);
  StepOptions& step = drawn.options.step;
  step.budget = {.max_nodes = Between(random, 1, kMaxNodes),
                 .max_depth = Between(random, 1, kMaxDepth),
                 .top_k = Between(random, 1, 8)};
  step.nwor = partial || random() % 3 != 0;
  if (!partial && random() % 4 == 0) step.scv_chunk_size = Between(random, 2, 8);
  if (partial) step.specpv = RandomView(random, drawn.options.block_size, exact);
  return drawn;
}

std::unique_ptr<Drafter> RandomCases::MakeDrafterFor(const Case& drawn, const RanksTarget& target,
                                                     const std::vector<GenerateResult>& plain,
                                                     Metrics* metrics) const {
  if (drawn.drafter == kOracle) {
    return std::make_unique<OracleDrafter>(AnswersOf(drawn.requests, plain), kVocabulary, 0.7,
                                           drawn.seed);
  }
  DraftCacheShape cache = drawn.options.DraftCache(kMaxLength);
  cache.kv_tokens = 0;  // a draft state that finds no room falls back
  const auto head = heads_.find(drawn.drafter.substr(0, drawn.drafter.find(',')));
  auto drafter = MakeDrafter(DrafterList::Parse(drawn.drafter).value(),
                             {.draft_model_path = head == heads_.end() ? "" : head->second.path(),
                              .budget = drawn.options.step.budget,
                              .weights = variant_.weights},
                             {.backend = target.backend,
                              .decoder = target.decoder,
                              .metrics = metrics,
                              .vocab_size = kVocabulary,
                              .cache = cache,
                              .model_path = model_dir()});
  EXPECT_TRUE(drafter.ok()) << drawn.drafter << ": " << drafter.status().message();
  return drafter.ok() ? std::move(drafter).value() : nullptr;
}

std::vector<GenerateResult> RandomCases::Run(const Case& drawn, const RanksTarget& target,
                                             const std::vector<GenerateResult>& plain) {
  auto metrics = std::make_unique<Metrics>();
  Metrics* counters = metrics.get();
  auto drafter = plain.empty() ? nullptr : MakeDrafterFor(drawn, target, plain, counters);
  auto engine = Engine::Create({.backend = target.backend,
                                .target = target.decoder,
                                .drafter = std::move(drafter),
                                .metrics = std::move(metrics)},
                               drawn.options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return {};
  SetLogLevel(LogLevel::kOff);  // small pools preempt
  auto results = RunBatch(engine->get(), drawn.requests);
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(counters->Total(Counter::kSpecFallback), 0);
  EXPECT_EQ(counters->Total(Counter::kSpecPvFallback), 0);
  preemptions_ += counters->Total(Counter::kRequestPreemptions);
  for (const GenerateResult& result : results) {
    EXPECT_TRUE(result.error.ok()) << result.error.message();
    accepted_ += result.stats.accepted;
    partial_passes_ += result.stats.partial_passes;
  }
  return results;
}

void RandomCases::Check(int index, const RanksTarget& one, std::span<const RanksTarget> several) {
  const Case drawn = Draw(index);
  Case undrafted = drawn;
  undrafted.options.step.specpv = {};
  const auto plain = Run(undrafted, one, {});
  ASSERT_EQ(plain.size(), drawn.requests.size());
  const bool lossy = drawn.options.step.specpv.lossy();
  const auto expected = lossy ? Run(drawn, one, plain) : plain;
  for (const RanksTarget& target : several) {
    SCOPED_TRACE(fmt::format("{}, case {}, {} ranks, {}", variant_.Name(), index,
                             target.decoder->shard().size, drawn.drafter));
    const auto results = Run(drawn, target, plain);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ExpectSameBits(expected[i], results[i]);
      tokens_ += std::ssize(results[i].tokens);
    }
  }
  ++cases_;
}

std::string RandomCases::Summary() const {
  return fmt::format(
      "{}: {} cases, {} tokens compared, {} drafts accepted, {} partial passes, {} preemptions\n",
      variant_.Name(), cases_, tokens_, accepted_, partial_passes_, preemptions_);
}

}  // namespace talon
