// Partial verification in the engine. Exact mode gives plain tokens whatever the budget, fast mode
// the tokens of its own rule; neither leaves anything behind.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/json.h"
#include "base/log.h"
#include "compute/host/host_backend.h"
#include "engine/step/lagging_backend.h"
#include "engine/test_engine.h"
#include "model/test_model.h"

namespace talon {
namespace {

TestModel& SmallWithLongPasses() {
  static TestModel model("tests/data/goldens/llama3", WeightFormat::kAsStored, 2200);
  return model;
}

// A budget so small that a hundred tokens are a long context.
SpecPvConfig TinyBudget() {
  SpecPvConfig config;
  config.enabled = true;
  config.block_size = 8;
  config.sink_blocks = 1;
  config.retrieval_blocks = 2;
  config.window_blocks = 1;
  config.buffer_tokens = 40;
  config.partial_threshold = 40;
  config.full_refresh_interval = 5;
  return config;
}

EngineOptions PartialOptions(const SpecPvConfig& specpv, int max_sequences = 1) {
  EngineOptions options{.kv_dtype = DType::kF32,
                        .block_size = 8,
                        .max_length = 400,
                        .max_sequences = max_sequences,
                        .prefill_chunk = 64};
  options.step.budget = {.max_nodes = 12, .max_depth = 6};
  options.step.specpv = specpv;
  return options;
}

GenerateRequest LongRequest(std::mt19937& random, int prompt, int max_tokens) {
  GenerateRequest request;
  request.prompt = RandomPrompt(random, prompt, kVocabulary);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<std::vector<int32_t>> Answers(const std::vector<GenerateRequest>& requests,
                                          const std::vector<GenerateResult>& results) {
  std::vector<std::vector<int32_t>> answers;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers.push_back(requests[i].prompt);
    for (const int32_t id : results[i].TokenIds()) answers.back().push_back(id);
  }
  return answers;
}

// Random requests, selectors, budgets and batches: zero differences against plain decoding.
SpecPvSelector RandomSelector(std::mt19937& random, Backend& backend) {
  const auto selector = static_cast<SpecPvSelector>(random() % 7);
  const bool known =
      selector != SpecPvSelector::kAttention || backend.kv_ops()->ScoresByAttention();
  return known ? selector : SpecPvSelector::kQuest;
}

TEST(SpecPvEngine, ExactGivesPlainTokens) {
  std::mt19937 random(23);
  const int rounds = TestRounds(20);
  int64_t partial = 0, rolled_back = 0, confirmed = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<GenerateRequest> requests;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      requests.push_back(LongRequest(random, 20 + static_cast<int>(random() % 120),
                                     10 + static_cast<int>(random() % 60)));
      SamplingParams& sampling = requests.back().sampling;
      sampling.seed = random();
      sampling.ignore_eos = random() % 2 == 0;
      if (random() % 2 == 0) sampling.temperature = 0.5f + static_cast<float>(random() % 10) / 10;
      if (random() % 4 == 0) sampling.repetition_penalty = 1.3f;
      if (random() % 4 == 0) sampling.frequency_penalty = 0.6f;
      if (random() % 4 == 0) sampling.logprobs = 2;
      if (random() % 4 == 0) sampling.stop_token_ids = {static_cast<int32_t>(random() % 512)};
      if (random() % 8 == 0) requests.back().speculate = false;
    }
    SpecPvConfig config = TinyBudget();
    config.selector = RandomSelector(random, *SmallWithLongPasses().backend);
    config.reduce = static_cast<SpecPvReduce>(random() % 3);
    config.retrieval_blocks = 1 + static_cast<int>(random() % 6);
    config.full_refresh_interval = 1 + static_cast<int>(random() % 12);
    config.error_target = random() % 3 == 0 ? 0.05f : 0;
    config.shadow_rate = random() % 4 == 0 ? 0.5f : 0;
    EngineOptions options = PartialOptions(config, 1 + static_cast<int>(random() % 4));
    options.kv_audit = round % 8 == 0;
    if (round % 4 == 2) options.kv_dtype = DType::kF8E4M3;
    if (round % 4 == 3) options.kv_dtype = DType::kI8;
    EngineOptions off = options;
    off.step.specpv = {};
    const auto plain = RunBatch(SmallWithLongPasses().MakeEngine(off).get(), requests);
    const auto engine = SmallWithLongPasses().MakeEngine(
        options,
        std::make_unique<OracleDrafter>(Answers(requests, plain), kVocabulary, 0.8, round));
    const auto spec = RunBatch(engine.get(), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "round " << round << " request " << i;
      ASSERT_EQ(plain[i].finish, spec[i].finish) << "round " << round;
      for (size_t t = 0; t < plain[i].tokens.size(); ++t) {
        ASSERT_EQ(plain[i].tokens[t].log_prob, spec[i].tokens[t].log_prob);
      }
      partial += spec[i].stats.partial_passes;
    }
    EXPECT_EQ(engine->metrics().Total(Counter::kSpecPvFallback), 0);
    EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
    rolled_back += engine->metrics().Total(Counter::kSpecPvRolledBackTokens);
    confirmed += engine->metrics().Total(Counter::kSpecPvConfirmedTokens);
  }
  EXPECT_GT(partial * 60, 250 * rounds);
  EXPECT_GT(rolled_back * 60, 50 * rounds);  // a random model's partial views do disagree
  EXPECT_GT(confirmed * 60, 50 * rounds);
}

// Where all layers see a window and the view is wider, a partial pass sees what a full one does.
TEST(SpecPvEngine, SlidingLayersKeepTheirWindow) {
  const TempDirectory dir;
  Json json = SmallConfig();
  json.update({{"architectures", {"MistralForCausalLM"}},
               {"sliding_window", 12},
               {"vocab_size", kVocabulary},
               {"max_position_embeddings", 512}});
  WriteModel(dir.path(), json, DType::kF32, 5);
  TestModel model(dir.path());
  ASSERT_EQ(model.target->config().max_context, 512);
  std::mt19937 random(31);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  for (int round = 0; round < 5; ++round) {
    const GenerateRequest request = LongRequest(random, 100, 80);
    const auto plain = model.MakeEngine(PartialOptions({}))->Generate(request).value();
    const auto engine = model.MakeEngine(
        PartialOptions(config),
        std::make_unique<OracleDrafter>(Answers({request}, {plain}), kVocabulary, 0.9, round));
    const auto fast = engine->Generate(request).value();
    EXPECT_EQ(fast.TokenIds(), plain.TokenIds()) << round;
    EXPECT_GT(fast.stats.partial_passes, 5);
  }
}

TEST(SpecPvEngine, AViewNarrowerThanTheWindowFallsBack) {
  const TempDirectory dir;
  Json json = ExpertsConfig("gpt_oss");
  json["sliding_window"] = 60;
  WriteModel(dir.path(), json, DType::kF32, 6);
  TestModel model(dir.path());
  std::mt19937 random(32);
  const GenerateRequest request = LongRequest(random, 100, 40);
  const auto plain = model.MakeEngine(PartialOptions({}))->Generate(request).value();
  SetLogLevel(LogLevel::kOff);
  const auto engine = model.MakeEngine(PartialOptions(TinyBudget()));
  const auto result = engine->Generate(request).value();
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(result.TokenIds(), plain.TokenIds());
  EXPECT_EQ(result.stats.partial_passes, 0);
  EXPECT_GT(engine->metrics().Get(Counter::kSpecPvFallback, "narrow_view"), 0);
}

TEST(SpecPvEngine, ExactGivesPlainTokensWithExpertsAndWindows) {
  const TempDirectory dir;
  WriteModel(dir.path(), ExpertsConfig("gpt_oss"), DType::kF32, 7);
  TestModel model(dir.path());
  std::mt19937 random(33);
  int64_t partial = 0;
  for (int round = 0; round < 5; ++round) {
    const GenerateRequest request = LongRequest(random, 100, 60);
    const auto plain = model.MakeEngine(PartialOptions({}))->Generate(request).value();
    const auto engine = model.MakeEngine(
        PartialOptions(TinyBudget()),
        std::make_unique<OracleDrafter>(Answers({request}, {plain}), kVocabulary, 0.9, round));
    const auto exact = engine->Generate(request).value();
    EXPECT_EQ(exact.TokenIds(), plain.TokenIds()) << round;
    partial += exact.stats.partial_passes;
  }
  EXPECT_GT(partial, 5);
}

// Stop strings and end tokens inside provisional text: the same finish, text and tokens.
TEST(SpecPvEngine, StopsWherePlainDecodingStops) {
  static TestModel tiny("models/tiny", WeightFormat::kInt8);
  std::vector<GenerateRequest> requests;
  std::string text;
  for (int i = 0; i < 12; ++i) text += "The captain looked at the sea and said nothing. ";
  for (const char* stop : {"the", "said", "\n", "zzzz"}) {
    GenerateRequest request;
    request.prompt = tiny.tokenizer->Encode(text + "Then", true).value();
    request.sampling.max_tokens = 60;
    request.stop = {stop};
    requests.push_back(std::move(request));
  }
  SpecPvConfig config = TinyBudget();
  config.block_size = 16;
  config.partial_threshold = 80;
  EngineOptions options = PartialOptions(config, 2);
  options.block_size = 16;
  EngineOptions off = options;
  off.step.specpv = {};
  const auto plain = RunBatch(tiny.MakeEngine(off).get(), requests);
  const auto engine = tiny.MakeEngine(
      options, std::make_unique<OracleDrafter>(Answers(requests, plain), 8192, 0.8, 1));
  const auto spec = RunBatch(engine.get(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << i;
    EXPECT_EQ(plain[i].text, spec[i].text) << i;
    EXPECT_EQ(plain[i].finish, spec[i].finish) << i;
  }
  EXPECT_GT(engine->metrics().Get(Counter::kSpecVerifyPasses, "partial"), 0);
}

// Exact mode streams once per full pass; fast mode streams every step.
TEST(SpecPvEngine, WhenTokensLeave) {
  std::mt19937 random(5);
  const GenerateRequest request = LongRequest(random, 100, 40);
  SpecPvConfig config = TinyBudget();
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    config.mode = mode;
    const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
    GenerateRequest streamed = request;
    int64_t updates = 0;
    streamed.on_update = [&](const RequestUpdate& update) { updates += !update.tokens.empty(); };
    const GenerateResult result = engine->Generate(std::move(streamed)).value();
    EXPECT_EQ(result.tokens.size(), 40u);
    const int64_t full = result.stats.passes - result.stats.partial_passes;
    EXPECT_GT(result.stats.partial_passes, 10);
    EXPECT_EQ(updates, mode == SpecPvMode::kExact ? full : result.stats.passes);
    EXPECT_EQ(result.stats.lossy, mode == SpecPvMode::kFast);
  }
}

// Fast mode keeps requests that want log-probs full.
TEST(SpecPvEngine, FastKeepsLogProbsFull) {
  std::mt19937 random(13);
  GenerateRequest request = LongRequest(random, 100, 30);
  request.sampling.logprobs = 1;
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
  const GenerateResult result = engine->Generate(std::move(request)).value();
  EXPECT_EQ(result.stats.partial_passes, 0);
}

// Requests that arrive together have their first full pass together. Soon one step has at most two
// of them, so that its cost stays even; at first rounds still grow. Exact rounds of this model are
// of one to four steps, as it disagrees with itself or not, so that three may meet.
TEST(SpecPvEngine, FullPassesOfABatchAreSpreadOverSteps) {
  constexpr int kRequests = 4;
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    SpecPvConfig config = TinyBudget();
    config.mode = mode;
    config.full_refresh_interval = 7;
    std::mt19937 random(5);
    EngineOptions options = PartialOptions(config, kRequests);
    options.prefill_chunk = 512;  // all prompts in one step
    const auto engine = SmallWithLongPasses().MakeEngine(options);
    for (int i = 0; i < kRequests; ++i) {
      ASSERT_TRUE(engine->Submit(LongRequest(random, 100, 200)).ok());
    }
    const auto refreshes = [&] { return engine->metrics().Total(Counter::kSpecPvRefresh); };
    int64_t most = 0;
    for (int step = 0; step < 60; ++step) {
      const int64_t before = refreshes();
      engine->RunStep();
      if (step >= 12) most = std::max(most, refreshes() - before);
    }
    EXPECT_GE(refreshes(), 5 * kRequests) << SpecPvModeName(mode);
    EXPECT_LE(most, mode == SpecPvMode::kExact ? 3 : 2) << SpecPvModeName(mode);
  }
}

// A pool far too small: preempted sequences lose their provisional tokens and get them again.
TEST(SpecPvEngine, PreemptionKeepsTheText) {
  std::mt19937 random(17);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(LongRequest(random, 60, 80));
  const auto plain =
      RunBatch(SmallWithLongPasses().MakeEngine(PartialOptions({}, 4)).get(), requests);
  SetLogLevel(LogLevel::kOff);
  EngineOptions options = PartialOptions(TinyBudget(), 4);
  options.kv_tokens = 260;
  options.kv_audit = true;
  const auto engine = SmallWithLongPasses().MakeEngine(
      options, std::make_unique<OracleDrafter>(Answers(requests, plain), kVocabulary, 0.9, 3));
  const auto spec = RunBatch(engine.get(), requests);
  SetLogLevel(LogLevel::kWarning);
  int64_t partial = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i;
    partial += spec[i].stats.partial_passes;
  }
  EXPECT_GT(partial, 10);
}

// Commits that fail in the middle of everything.
TEST(SpecPvEngine, FailedCommitsLoseNothing) {
  std::mt19937 random(19);
  const GenerateRequest request = LongRequest(random, 90, 80);
  const auto plain =
      SmallWithLongPasses().MakeEngine(PartialOptions({}))->Generate(request).value();
  SetLogLevel(LogLevel::kOff);
  const auto engine = SmallWithLongPasses().MakeEngine(
      PartialOptions(TinyBudget()),
      std::make_unique<OracleDrafter>(Answers({request}, {plain}), kVocabulary, 0.9, 3));
  const RequestId id = engine->Submit(request).value();
  for (int step = 0; engine->HasWork(); ++step) {
    if (step % 3 == 1) engine->kv().InjectCommitFault(1);
    engine->RunStep();
    ASSERT_TRUE(engine->CheckIntegrity().ok());
  }
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(engine->Take(id).value().TokenIds(), plain.TokenIds());
  EXPECT_GT(engine->metrics().Get(Counter::kNworFallback, "commit_failed"), 0);
}

// A shadow sees what the trunk of an exact pass would, and changes nothing.
TEST(SpecPvEngine, ShadowsMeasureAndChangeNothing) {
  std::mt19937 random(37);
  const GenerateRequest request = LongRequest(random, 110, 60);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  const auto without =
      SmallWithLongPasses().MakeEngine(PartialOptions(config))->Generate(request).value();
  config.shadow_rate = 1;
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
  const auto with = engine->Generate(request).value();
  EXPECT_EQ(without.TokenIds(), with.TokenIds());
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecPvCheckedTokens), with.stats.partial_passes);
  EXPECT_GT(engine->metrics().Get(Histogram::kSpecPvKlNats, "1").count, 3);
  EXPECT_GT(engine->metrics().Get(Histogram::kSpecPvKlNats, "1").Mean(), 0);
  EXPECT_GT(engine->metrics().Get(Histogram::kSpecPvHiddenCosine, "1").Mean(), 0.3);
}

// Full passes come after every second partial one, so there is at most one provisional token. Its
// K/V is computed again before the root's.
TEST(SpecPvEngine, ShadowsComputeTheProvisionalTokens) {
  std::mt19937 random(37);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  config.shadow_rate = 1;
  config.full_refresh_interval = 2;
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
  ASSERT_TRUE(engine->Generate(LongRequest(random, 110, 60)).ok());
  const auto shadows_at = [&](const char* distance) {
    return engine->metrics().Get(Histogram::kSpecPvKlNats, distance).count;
  };
  EXPECT_GT(shadows_at("1"), 3);
  EXPECT_GT(shadows_at("2"), 3);
  EXPECT_EQ(shadows_at("4"), 0);
  const auto per_token = static_cast<int64_t>(engine->kv().shape().BytesPerToken());
  EXPECT_EQ(engine->metrics().Get(Counter::kKvBytesStaged, "shadow"),
            per_token * (shadows_at("1") + 2 * shadows_at("2")));
}

// Refreshes that the governor asked for, of a request that is checked all along.
int64_t DriftRefreshes(const SpecPvConfig& config, const GenerateRequest& request) {
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
  EXPECT_TRUE(engine->Generate(request).ok());
  return engine->metrics().Get(Counter::kSpecPvRefresh, "drift");
}

// The random model disagrees with itself often, so that a small target is missed.
TEST(SpecPvEngine, AnErrorTargetBringsFullPassesSooner) {
  std::mt19937 random(41);
  GenerateRequest request = LongRequest(random, 60, 330);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  config.shadow_rate = 1;
  EXPECT_EQ(DriftRefreshes(config, request), 0);
  config.error_target = 0.01f;
  const int64_t refreshes = DriftRefreshes(config, request);
  EXPECT_GT(refreshes, 0);
  config.error_target = 0;
  request.specpv.error_target = 0.01f;
  EXPECT_EQ(DriftRefreshes(config, request), refreshes);
  config.error_target = 1;  // any disagreement will do
  request.specpv.error_target.reset();
  EXPECT_EQ(DriftRefreshes(config, request), 0);
}

TEST(SpecPvEngine, AdaptiveBudgetsKeepShortAnswersFull) {
  std::mt19937 random(43);
  const GenerateRequest request = LongRequest(random, 100, 12);  // < 2 (depth 6 + 1)
  SpecPvConfig config = TinyBudget();
  for (const bool adaptive : {false, true}) {
    config.adaptive = adaptive;
    const auto result =
        SmallWithLongPasses().MakeEngine(PartialOptions(config))->Generate(request).value();
    EXPECT_EQ(result.stats.partial_passes == 0, adaptive);
  }
}

// A request that may become longer than 16K tokens gets half of the blocks, and more of them again
// where a full pass after every partial one still disagrees too often.
TEST(SpecPvEngine, AdaptiveBudgetsMove) {
  std::mt19937 random(45);
  GenerateRequest request = LongRequest(random, 600, 20000);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;
  config.retrieval_blocks = 64;
  config.full_refresh_interval = 1;
  config.shadow_rate = 1;
  const auto visible = [&](int steps) {
    EngineOptions options = PartialOptions(config);
    options.max_length = 1600;
    options.prefill_chunk = 600;
    const auto engine = SmallWithLongPasses().MakeEngine(options);
    EXPECT_TRUE(engine->Submit(request).ok());
    for (int step = 0; step < steps; ++step) engine->RunStep();
    return engine->metrics().Get(Histogram::kSpecPvVisibleRatio);
  };
  const double fixed = visible(40).Mean();
  config.adaptive = true;
  const double halved = visible(40).Mean();
  EXPECT_LT(halved, 0.65 * fixed);
  EXPECT_GT(halved, 0.4 * fixed);
  config.error_target = 0.01f;
  constexpr int kWindowSteps = 2 * DriftGovernor::kWindow;  // every second step is checked
  const auto before = visible(kWindowSteps - 40), after = visible(kWindowSteps + 80);
  const double last = (after.sum - before.sum) / static_cast<double>(after.count - before.count);
  EXPECT_GT(last, 1.1 * before.Mean());
}

TEST(SpecPvEngine, ARequestsOwnBudgetIsInTokens) {
  std::mt19937 random(47);
  GenerateRequest request = LongRequest(random, 100, 30);
  SpecPvConfig config = TinyBudget();
  config.mode = SpecPvMode::kFast;  // whether exact steps are partial depends on their time
  const auto visible = [&](int budget_tokens) {
    request.specpv.budget_tokens = budget_tokens;
    const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
    EXPECT_TRUE(engine->Generate(request).ok());
    return engine->metrics().Get(Histogram::kSpecPvVisibleRatio).Mean();
  };
  EXPECT_EQ(visible(16), visible(9));  // two blocks of 8
  EXPECT_LT(visible(8), visible(9));
}

TEST(SpecPvEngine, OffLeavesNoTrace) {
  std::mt19937 random(29);
  const GenerateRequest request = LongRequest(random, 120, 40);
  SpecPvConfig off = TinyBudget();
  off.enabled = false;
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(off));
  const auto result = engine->Generate(request).value();
  const auto plain =
      SmallWithLongPasses().MakeEngine(PartialOptions({}))->Generate(request).value();
  EXPECT_EQ(result.TokenIds(), plain.TokenIds());
  for (const Counter counter :
       {Counter::kSpecPvRefresh, Counter::kSpecPvFallback, Counter::kSpecPvCheckedTokens,
        Counter::kSpecPvConfirmedTokens, Counter::kSpecPvRolledBackTokens}) {
    EXPECT_EQ(engine->metrics().Total(counter), 0) << CounterName(counter);
  }
  EXPECT_EQ(engine->metrics().Get(Counter::kSpecVerifyPasses, "partial"), 0);
  EXPECT_FALSE(engine->kv().shape().key_summaries);
}

TEST(SpecPvEngine, WhatRulesItOutTurnsItOff) {
  SetLogLevel(LogLevel::kOff);
  SpecPvConfig config = TinyBudget();
  config.buffer_tokens = 18;  // < tree 12 + depth 6 + 1
  const auto engine = SmallWithLongPasses().MakeEngine(PartialOptions(config));
  EXPECT_EQ(engine->metrics().Get(Counter::kSpecPvFallback, "buffer_too_small"), 1);
  config = TinyBudget();
  EngineOptions other = PartialOptions(config);
  other.block_size = 16;
  EXPECT_EQ(SmallWithLongPasses().MakeEngine(other)->metrics().Get(Counter::kSpecPvFallback,
                                                                   "block_size"),
            1);
  SetLogLevel(LogLevel::kWarning);
}

// A request whose first step past the threshold meets `harm`: one fallback for this reason, then
// full verification to the end, with plain decoding's tokens.
void ExpectFallback(const char* reason, const std::function<void(Engine*)>& harm,
                    EngineOptions options = PartialOptions(TinyBudget())) {
  std::mt19937 random(53);
  const GenerateRequest request = LongRequest(random, 100, 40);
  const auto plain =
      SmallWithLongPasses().MakeEngine(PartialOptions({}))->Generate(request).value();
  options.prefill_chunk = 512;  // the whole prompt in the first step
  const auto engine = SmallWithLongPasses().MakeEngine(options);
  SetLogLevel(LogLevel::kOff);
  const RequestId id = engine->Submit(request).value();
  engine->RunStep();
  harm(engine.get());
  while (engine->HasWork()) engine->RunStep();
  SetLogLevel(LogLevel::kWarning);
  const GenerateResult result = engine->Take(id).value();
  EXPECT_EQ(result.TokenIds(), plain.TokenIds()) << reason;
  EXPECT_EQ(result.stats.partial_passes, 0) << reason;
  EXPECT_EQ(engine->metrics().Get(Counter::kSpecPvFallback, reason), 1) << reason;
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecPvFallback), 1) << reason;
}

// Key summaries that are NaN, as memory may have them that something else wrote to.
TEST(SpecPvEngine, NanScoresFallBack) {
  EngineOptions options = PartialOptions(TinyBudget());
  options.step.specpv.selector = SpecPvSelector::kQuest;
  const auto spoil = [](Engine* engine) {
    const KvView kv = engine->kv().view();
    const std::vector<float> nan(kv.shape.SummaryBytes() * kv.shape.num_blocks / sizeof(float),
                                 std::numeric_limits<float>::quiet_NaN());
    for (const KvLayer& layer : kv.layers) {
      for (void* summaries : {layer.key_max, layer.key_min}) {
        SmallWithLongPasses().backend->CopyIn(summaries, nan.data(), nan.size() * sizeof(float));
      }
    }
  };
  ExpectFallback("nan_scores", spoil, options);
}

TEST(SpecPvEngine, ATailThatIsTakenFallsBack) {
  Sequence other;
  ExpectFallback("invariant", [&](Engine* engine) {
    ASSERT_TRUE(engine->kv().staging().OpenTail(&other).ok());
  });
}

// Another choice of columns comes between a pass and its own.
TEST(SpecPvEngine, RankedBlocksThatAreLostFallBack) {
  Backend* backend = SmallWithLongPasses().backend.get();
  const auto memory = backend->Allocate(4 * sizeof(float), Placement::kDevice).value();
  EngineOptions options = PartialOptions(TinyBudget());
  options.step.edit_choices = [&](const TokenTree&, int, std::span<int32_t>) {
    backend->kv_ops()->ChooseColumns({static_cast<float*>(memory.data()), 1, 4, 4},
                                     std::vector<ColumnChoice>{{.begin = 0, .end = 4, .count = 1}});
  };
  ExpectFallback(
      "invariant", [](Engine*) {}, options);
}

// No memory for tails and key summaries, or for block scores: the engine lives and verifies in
// full.
TEST(SpecPvEngine, NoMemoryTurnsItOffOrIsSkippedOnADevice) {
  auto* host = dynamic_cast<HostBackend*>(SmallWithLongPasses().backend.get());
  if (host == nullptr) GTEST_SKIP() << "allocations fail on the host only";
  std::mt19937 random(31);
  const GenerateRequest request = LongRequest(random, 120, 20);
  const auto plain =
      SmallWithLongPasses().MakeEngine(PartialOptions({}))->Generate(request).value();
  EngineOptions large_tails = PartialOptions(TinyBudget());
  large_tails.step.specpv.buffer_tokens = 2000;
  EngineOptions large_scores = PartialOptions(TinyBudget(), 64);
  large_scores.kv_tokens = 200;
  large_scores.max_length = 4000;
  large_scores.step.specpv.buffer_tokens = 2;
  large_scores.step.budget = {};
  SetLogLevel(LogLevel::kOff);
  for (const EngineOptions& options : {large_tails, large_scores}) {
    EngineOptions off = options;
    off.step.specpv = {};
    const size_t bytes_without = SmallWithLongPasses().MakeEngine(off)->kv().bytes();
    const auto with = SmallWithLongPasses().MakeEngine(options);
    EXPECT_EQ(with->metrics().Total(Counter::kSpecPvFallback), 0);
    // The cache fits as a whole in the second case, but the scores do not.
    host->LimitAllocations(options.max_sequences == 1 ? bytes_without : with->kv().bytes());
    const auto engine = SmallWithLongPasses().MakeEngine(options);
    host->LimitAllocations(std::numeric_limits<size_t>::max());
    EXPECT_EQ(engine->metrics().Get(Counter::kSpecPvFallback, "no_memory"), 1);
    EXPECT_EQ(engine->kv().bytes(), bytes_without);
    const auto result = engine->Generate(request).value();
    EXPECT_EQ(result.TokenIds(), plain.TokenIds());
    EXPECT_EQ(result.stats.partial_passes, 0);
  }
  SetLogLevel(LogLevel::kWarning);
}

}  // namespace
}  // namespace talon
