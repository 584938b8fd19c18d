// What cannot be staged or committed is computed again as plain steps, written directly: the text
// is the same, and every request lives.
#include <gtest/gtest.h>

#include "base/log.h"
#include "engine/test_engine.h"
#include "spec/policy/policy.h"

namespace talon {
namespace {

std::vector<GenerateRequest> StagedRequests() {
  std::mt19937 random(5);
  std::vector<GenerateRequest> requests(3);
  for (GenerateRequest& request : requests) {
    request.prompt = RandomPrompt(random, 24, kVocabulary);
    request.sampling.max_tokens = 30;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

EngineOptions StagingOptions() {
  EngineOptions options{.kv_dtype = DType::kF32,
                        .max_length = 128,
                        .max_sequences = 2,
                        .prefill_chunk = 10,
                        .kv_audit = true};
  options.step.budget = {.max_nodes = 12, .max_depth = 6};
  return options;
}

// A budget so small that the requests are long contexts.
SpecPvConfig OneBlockBudget(SpecPvMode mode) {
  return {.enabled = true,
          .block_size = 16,
          .sink_blocks = 0,
          .retrieval_blocks = 0,
          .window_blocks = 1,
          .buffer_tokens = 24,
          .partial_threshold = 16,
          .full_refresh_interval = 4,
          .mode = mode};
}

std::vector<std::vector<int32_t>> PlainTokens() {
  std::vector<std::vector<int32_t>> tokens;
  for (const GenerateResult& result :
       RunBatch(Small().MakeEngine(StagingOptions()).get(), StagedRequests())) {
    tokens.push_back(result.TokenIds());
  }
  return tokens;
}

std::unique_ptr<Drafter> Oracle() {
  const std::vector<GenerateRequest> requests = StagedRequests();
  std::vector<std::vector<int32_t>> answers = PlainTokens();
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].insert(answers[i].begin(), requests[i].prompt.begin(), requests[i].prompt.end());
  }
  return std::make_unique<OracleDrafter>(answers, kVocabulary, 0.8, 3);
}

// Runs the requests with `disturb` called before every step, and returns the engine.
std::unique_ptr<Engine> RunDisturbed(const EngineOptions& options,
                                     const std::function<void(Engine*, int step)>& disturb) {
  SetLogLevel(LogLevel::kOff);
  auto engine = Small().MakeEngine(options, Oracle());
  std::vector<RequestId> ids;
  for (GenerateRequest& request : StagedRequests()) ids.push_back(engine->Submit(request).value());
  for (int step = 0; engine->HasWork() && step < 1000; ++step) {
    disturb(engine.get(), step);
    engine->RunStep();
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  }
  SetLogLevel(LogLevel::kWarning);
  EXPECT_FALSE(engine->HasWork()) << "no progress";
  const std::vector<std::vector<int32_t>> expected = PlainTokens();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto result = engine->Take(ids[i]);
    if (!result.ok()) {
      ADD_FAILURE() << result.status().message();
      continue;
    }
    EXPECT_EQ(result->finish, FinishReason::kLength) << result->error.message();
    EXPECT_EQ(result->TokenIds(), expected[i]);
  }
  return engine;
}

// Rows that were staged are committed or rejected, and nothing else.
void ExpectRowsAddUp(const Metrics& metrics) {
  EXPECT_EQ(
      metrics.Total(Counter::kNworStagedTokens),
      metrics.Total(Counter::kNworTokensCommitted) + metrics.Total(Counter::kNworTokensRejected));
}

TEST(StagingFallback, ALostReportIsIncomplete) {
  const int layers = Small().target->config().num_layers;
  for (const int every : {1, 3}) {  // with 1 every staged step falls back, and yet it goes on
    const auto engine = RunDisturbed(StagingOptions(), [&](Engine* engine, int step) {
      if (step % every == 0) engine->kv().staging().InjectLostReport(step % layers);
    });
    EXPECT_GT(engine->metrics().Get(Counter::kNworFallback, "incomplete"), 3);
    EXPECT_GT(engine->metrics().Get(Counter::kKvBytesWritten, "tree"), 0);
    ExpectRowsAddUp(engine->metrics());
  }
}

TEST(StagingFallback, BusyStagingTakesAPlainStep) {
  const auto engine = RunDisturbed(StagingOptions(), [](Engine* engine, int step) {
    if (step % 3 != 0) return;
    EXPECT_TRUE(engine->kv().staging().Begin(2).ok());
  });
  EXPECT_GT(engine->metrics().Get(Counter::kNworFallback, "busy"), 3);
  EXPECT_GT(engine->metrics().Total(Counter::kSpecAcceptedTokens), 0);
  ExpectRowsAddUp(engine->metrics());
}

// Provisional tokens survive whatever happens to staging.
TEST(StagingFallback, PartialVerificationGoesOn) {
  for (const int every : {1, 3}) {
    EngineOptions options = StagingOptions();
    options.step.specpv = OneBlockBudget(SpecPvMode::kExact);
    const auto engine = RunDisturbed(options, [&](Engine* engine, int step) {
      if (step % every != 0) return;
      if (step % 2 == 0) {
        engine->kv().staging().InjectLostReport(0);
      } else {
        EXPECT_TRUE(engine->kv().staging().Begin(1).ok());
      }
    });
    const Metrics& metrics = engine->metrics();
    EXPECT_GT(metrics.Get(Counter::kNworFallback, "incomplete"), 3);
    EXPECT_GT(metrics.Get(Counter::kNworFallback, "busy"), 3);
    EXPECT_GT(metrics.Get(Counter::kSpecPvRefresh, "request"), 3);
    if (every == 3) {
      EXPECT_GT(metrics.Get(Counter::kNworTokensCommitted, "tail"), 3);
    }
    ExpectRowsAddUp(metrics);
  }
}

// As many wrong children of the root as fit.
class WideDrafter : public Drafter {
 public:
  std::string_view name() const override { return "WIDE"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int n = 1; n < requests[i].budget.max_nodes; ++n) trees[i].Add(0, n, 0.1f);
    }
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}
};

// Written directly, the first sequence's tree would take the block of the second one's root.
TEST(StagingFallback, DirectTreesLeaveBlocksToTheRootsOfOthers) {
  std::vector<GenerateRequest> requests = StagedRequests();
  requests.resize(2);
  for (GenerateRequest& request : requests) request.prompt.resize(17);  // a block, and the root
  EngineOptions options = StagingOptions();
  const auto plain = RunBatch(Small().MakeEngine(options).get(), requests);
  options.kv_tokens = 5 * options.block_size;
  options.step.nwor = false;
  options.step.budget = {.max_nodes = 48, .max_depth = 1};
  SetLogLevel(LogLevel::kOff);
  const auto engine = Small().MakeEngine(options, std::make_unique<WideDrafter>());
  const auto results = RunBatch(engine.get(), requests);
  SetLogLevel(LogLevel::kWarning);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(results[i].TokenIds(), plain[i].TokenIds());
  EXPECT_GT(engine->metrics().Get(Counter::kNworFallback, "no_blocks"), 0);
}

// A step over a cache whose staging holds fewer rows than the trees have.
TEST(StagingFallback, OverflowTakesAPlainStep) {
  const std::vector<GenerateRequest> requests = StagedRequests();
  const std::vector<std::vector<int32_t>> expected = PlainTokens();
  const ModelConfig& config = Small().target->config();
  Metrics metrics;
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim,
                      .block_size = 16,
                      .dtype = DType::kF32,
                      .num_blocks = 32,
                      .staging_rows = 10};
  const auto kv = KvCache::Create(Small().backend.get(), shape, &metrics).value();
  const auto drafter = Oracle();
  FixedPolicy policy;
  StepOptions options{.budget = {.max_nodes = 12, .max_depth = 6}, .max_length = 128};
  Step step({.backend = Small().backend.get(),
             .target = Small().target.get(),
             .kv = kv.get(),
             .drafter = drafter.get(),
             .policy = &policy,
             .metrics = &metrics},
            options);
  std::vector<std::unique_ptr<ActiveRequest>> runs;
  for (size_t i = 0; i < 2; ++i) {
    runs.push_back(
        std::make_unique<ActiveRequest>(i + 1, requests[i], std::vector<int32_t>{},
                                        OutputText(nullptr, StopMatcher::Create({}).value())));
    const PromptChunk prompt{runs[i].get(), runs[i]->prompt_left()};
    ASSERT_TRUE(step.Run({}, {&prompt, 1}).ok());
  }
  SetLogLevel(LogLevel::kOff);
  for (int i = 0; i < 1000 && !(runs[0]->finished() && runs[1]->finished()); ++i) {
    std::vector<ActiveRequest*> decoding;
    for (const auto& run : runs) {
      if (!run->finished()) decoding.push_back(run.get());
    }
    const Status status = step.Run(decoding, {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  SetLogLevel(LogLevel::kWarning);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(runs[i]->result.TokenIds(), expected[i]);
  EXPECT_GT(metrics.Get(Counter::kNworFallback, "overflow"), 3);
  EXPECT_GT(metrics.Total(Counter::kSpecAcceptedTokens), 0);  // smaller trees do fit
  ExpectRowsAddUp(metrics);
}

}  // namespace
}  // namespace talon
