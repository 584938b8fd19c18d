// Speculation changes the speed and nothing else: random trees, batches and sampling settings
// against plain decoding, token for token.
#include <gtest/gtest.h>

#include <map>

#include "base/json.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/test_engine.h"
#include "model/single_sequence.h"
#include "model/test_model.h"

namespace talon {
namespace {

SamplingParams RandomSampling(std::mt19937& random) {
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  SamplingParams params;
  params.max_tokens = 1 + static_cast<int>(random() % 40);
  params.seed = random();
  if (chance(60)) params.temperature = 0.2f + static_cast<float>(random() % 20) / 10;
  if (chance(30)) params.top_k = 1 + static_cast<int>(random() % 50);
  if (chance(30)) params.top_p = 0.3f + static_cast<float>(random() % 7) / 10;
  if (chance(30)) params.min_p = static_cast<float>(random() % 3) / 20;
  if (chance(30)) params.repetition_penalty = 1.0f + static_cast<float>(random() % 10) / 10;
  if (chance(30)) params.frequency_penalty = static_cast<float>(random() % 10) / 5;
  if (chance(30)) params.presence_penalty = static_cast<float>(random() % 10) / 5 - 1;
  if (chance(30)) params.logit_bias = {{3, 1.5f}, {200, -4.0f}};
  if (chance(20)) params.min_tokens = static_cast<int>(random() % params.max_tokens);
  if (chance(20)) params.stop_token_ids = {static_cast<int32_t>(random() % kVocabulary)};
  if (chance(20)) params.bad_words = {{static_cast<int32_t>(random() % kVocabulary)}, {4, 9}};
  if (chance(20)) params.logprobs = static_cast<int>(random() % 4);
  return params;
}

void ExpectSame(const GenerateResult& plain, const GenerateResult& spec, int round) {
  ASSERT_EQ(plain.TokenIds(), spec.TokenIds()) << "round " << round;
  ASSERT_EQ(plain.finish, spec.finish) << "round " << round;
  for (size_t i = 0; i < plain.tokens.size(); ++i) {
    ASSERT_EQ(plain.tokens[i].log_prob, spec.tokens[i].log_prob) << "round " << round;
  }
}

// Random weights of a model with experts.
TestModel& WithExperts(const std::string& kind) {
  static std::map<std::string, std::unique_ptr<TestModel>> models;
  std::unique_ptr<TestModel>& model = models[kind];
  if (model == nullptr) {
    const TempDirectory dir;
    WriteModel(dir.path(), ExpertsConfig(kind), DType::kF32, 21);
    model = std::make_unique<TestModel>(dir.path());
  }
  return *model;
}

struct Variant {
  const char* name;
  const char* experts = nullptr;  // kind of ExpertsConfig; null: a dense model
  bool fp8 = false;               // the bundled model, with FP8 activations
  bool nwor = true;
  int scv_chunk_size = 0;
  DType kv_dtype = DType::kF32;
  int rounds = 50;
};

class IdentityTest : public testing::TestWithParam<Variant> {};

// Each round: up to 8 random requests in one batch, plain, then with random trees of 1 to 64 nodes.
TEST_P(IdentityTest, RandomTreesGivePlainTokens) {
  const Variant& variant = GetParam();
  std::mt19937 random(17);
  int64_t accepted = 0;
  const int rounds = TestRounds(variant.rounds);
  TestModel& model = variant.fp8                  ? TinyFp8()
                     : variant.experts == nullptr ? Small()
                                                  : WithExperts(variant.experts);
  for (int round = 0; round < rounds; ++round) {
    std::vector<GenerateRequest> requests(1 + random() % 8);
    for (GenerateRequest& request : requests) {
      request.prompt = RandomPrompt(random, 1 + static_cast<int>(random() % 60), kVocabulary);
      request.sampling = RandomSampling(random);
      request.speculate = random() % 8 != 0;
    }
    EngineOptions options{.kv_dtype = variant.kv_dtype,
                          .block_size = round % 2 == 0 ? 16 : 8,
                          .max_length = 128,
                          .max_sequences = 1 + static_cast<int>(random() % 8),
                          .prefill_chunk = 1 + static_cast<int>(random() % 50),
                          .kv_audit = round % 10 == 0};
    const auto plain = RunBatch(model.MakeEngine(options).get(), requests);
    std::vector<std::vector<int32_t>> answers;
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(requests[i].prompt);
      const auto ids = plain[i].TokenIds();
      answers.back().insert(answers.back().end(), ids.begin(), ids.end());
    }
    options.step.budget = {.max_nodes = 1 + static_cast<int>(random() % 64),
                           .max_depth = 1 + static_cast<int>(random() % 20)};
    options.step.nwor = variant.nwor;
    options.step.scv_chunk_size = variant.scv_chunk_size;
    const auto engine = model.MakeEngine(
        options, std::make_unique<OracleDrafter>(answers, kVocabulary, 0.7, round));
    const auto spec = RunBatch(engine.get(), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectSame(plain[i], spec[i], round);
      accepted += spec[i].stats.accepted;
    }
    EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
    EXPECT_EQ(engine->metrics().Total(Counter::kNworFallback), 0);
  }
  EXPECT_GT(accepted, 10 * rounds);  // the drafts did matter
}

INSTANTIATE_TEST_SUITE_P(
    Variants, IdentityTest,
    testing::Values(Variant{.name = "Default", .rounds = 100},
                    Variant{.name = "WithoutNwor", .nwor = false},
                    Variant{.name = "ChunkOf3", .scv_chunk_size = 3},
                    Variant{.name = "ChunkOf8", .scv_chunk_size = 8},
                    Variant{.name = "GptOss", .experts = "gpt_oss", .rounds = 30},
                    Variant{.name = "GptOssMxfp4", .experts = "gpt_oss_mxfp4", .rounds = 30},
                    Variant{.name = "QwenMoe", .experts = "qwen3_moe", .rounds = 30},
                    Variant{.name = "Fp8Activations", .fp8 = true, .rounds = 8},
                    Variant{.name = "KvF16", .kv_dtype = DType::kF16},
                    Variant{.name = "KvBf16", .kv_dtype = DType::kBF16},
                    Variant{.name = "KvFp8", .kv_dtype = DType::kF8E4M3},
                    Variant{.name = "KvInt8", .kv_dtype = DType::kI8},
                    Variant{.name = "KvInt8WithoutNwor", .nwor = false, .kv_dtype = DType::kI8},
                    Variant{
                        .name = "KvFp8ChunkOf3", .scv_chunk_size = 3, .kv_dtype = DType::kF8E4M3}),
    [](const auto& info) { return info.param.name; });

// Proposes whatever a test wants, valid or not.
class ScriptedDrafter : public Drafter {
 public:
  explicit ScriptedDrafter(std::function<void(const DraftRequest&, TokenTree*)> script)
      : script_(std::move(script)) {}
  std::string_view name() const override { return "SCRIPTED"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) script_(requests[i], &trees[i]);
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}

 private:
  std::function<void(const DraftRequest&, TokenTree*)> script_;
};

EngineOptions IdentityOptions() {
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 128, .max_sequences = 1};
  options.step.budget = {.max_nodes = 16, .max_depth = 8};
  return options;
}

GenerateRequest SmallRequest(int max_tokens = 20) {
  GenerateRequest request;
  request.prompt = {5, 17, 300, 42, 8};
  request.sampling.max_tokens = max_tokens;
  return request;
}

TEST(Tree, FaultyDraftersFallBackAndHarmNothing) {
  const auto plain = Small().MakeEngine(IdentityOptions())->Generate(SmallRequest()).value();
  const std::vector<std::function<void(const DraftRequest&, TokenTree*)>> faults = {
      [](const DraftRequest&, TokenTree* t) { t->tokens.push_back(3), t->parents.push_back(0); },
      [](const DraftRequest&, TokenTree* t) { t->Add(1, 3, 1); },  // own parent
      [](const DraftRequest&, TokenTree* t) {
        t->Add(5, 3, 1), t->Add(0, 4, 1);
      },  // forward parent
      [](const DraftRequest&, TokenTree* t) { t->Add(0, 3, 1), t->Add(0, 3, 1); },  // repeated
      [](const DraftRequest&, TokenTree* t) { t->Add(0, kVocabulary, 1); },
      [](const DraftRequest&, TokenTree* t) { t->Add(0, -7, 1); },
      [](const DraftRequest&, TokenTree* t) { t->Add(-1, 7, 1); },  // second root
      [](const DraftRequest&, TokenTree* t) {
        for (int i = 0; i < 40; ++i) t->Add(0, i, 1);
      },
      [](const DraftRequest&, TokenTree* t) { *t = TokenTree(); },
      [](const DraftRequest&, TokenTree* t) { *t = TokenTree(1), t->Add(0, 2, 1); },  // wrong root
  };
  SetLogLevel(LogLevel::kOff);
  for (size_t i = 0; i < faults.size(); ++i) {
    const auto engine =
        Small().MakeEngine(IdentityOptions(), std::make_unique<ScriptedDrafter>(faults[i]));
    const auto result = engine->Generate(SmallRequest()).value();
    EXPECT_EQ(result.TokenIds(), plain.TokenIds()) << "fault " << i;
    EXPECT_EQ(engine->metrics().Get(Counter::kSpecFallback, "invalid_tree"), 19) << "fault " << i;
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  }
  SetLogLevel(LogLevel::kWarning);
}

TEST(Nwor, FailedCommitRepeatsTheStepWithTheRoot) {
  const auto plain = Small().MakeEngine(IdentityOptions())->Generate(SmallRequest()).value();
  std::vector<int32_t> answer = SmallRequest().prompt;
  for (const int32_t id : plain.TokenIds()) answer.push_back(id);
  SetLogLevel(LogLevel::kOff);
  for (int layer = 0; layer < Small().target->config().num_layers; ++layer) {
    const auto engine = Small().MakeEngine(
        IdentityOptions(), std::make_unique<OracleDrafter>(
                               std::vector<std::vector<int32_t>>{answer}, kVocabulary, 0.9, layer));
    const RequestId id = engine->Submit(SmallRequest()).value();
    for (int step = 0; engine->HasWork(); ++step) {
      if (step % 3 == 1) engine->kv().InjectCommitFault(layer);
      engine->RunStep();
      ASSERT_TRUE(engine->CheckIntegrity().ok());
    }
    EXPECT_EQ(engine->Take(id).value().TokenIds(), plain.TokenIds());
    EXPECT_GT(engine->metrics().Get(Counter::kNworFallback, "commit_failed"), 0);
  }
  SetLogLevel(LogLevel::kWarning);
}

TEST(KvContract, BytesWrittenEqualsAccepted) {
  const auto plain = Small().MakeEngine(IdentityOptions())->Generate(SmallRequest()).value();
  std::vector<int32_t> answer = SmallRequest().prompt;
  for (const int32_t id : plain.TokenIds()) answer.push_back(id);
  const auto engine = Small().MakeEngine(
      IdentityOptions(), std::make_unique<OracleDrafter>(std::vector<std::vector<int32_t>>{answer},
                                                         kVocabulary, 0.8, 1));
  const auto result = engine->Generate(SmallRequest()).value();
  Metrics& metrics = engine->metrics();
  const auto token_bytes = static_cast<int64_t>(engine->kv().shape().BytesPerToken());
  const int64_t accepted = result.stats.accepted + result.stats.passes;  // with the roots
  EXPECT_GT(result.stats.rows, accepted);
  EXPECT_EQ(metrics.Get(Counter::kNworTokensCommitted, "blocks"), accepted);
  EXPECT_EQ(metrics.Get(Counter::kKvBytesWritten, "commit"), accepted * token_bytes);
  EXPECT_EQ(metrics.Get(Counter::kKvBytesWritten, "prefill"), 4 * token_bytes);
  EXPECT_EQ(metrics.Total(Counter::kKvBytesWritten), (accepted + 4) * token_bytes);
  EXPECT_EQ(metrics.Total(Counter::kKvBytesStaged), result.stats.rows * token_bytes);
  EXPECT_EQ(metrics.Total(Counter::kNworBytesSaved), (result.stats.rows - accepted) * token_bytes);
}

// The same trees written at once: every row reaches a block.
TEST(KvContract, DirectBytesAreAllRows) {
  const auto plain = Small().MakeEngine(IdentityOptions())->Generate(SmallRequest()).value();
  std::vector<int32_t> answer = SmallRequest().prompt;
  for (const int32_t id : plain.TokenIds()) answer.push_back(id);
  EngineOptions options = IdentityOptions();
  options.step.nwor = false;
  const auto engine = Small().MakeEngine(
      options, std::make_unique<OracleDrafter>(std::vector<std::vector<int32_t>>{answer},
                                               kVocabulary, 0.8, 1));
  const auto result = engine->Generate(SmallRequest()).value();
  const Metrics& metrics = engine->metrics();
  const auto token_bytes = static_cast<int64_t>(engine->kv().shape().BytesPerToken());
  EXPECT_GT(result.stats.rows, result.stats.accepted + result.stats.passes);
  EXPECT_EQ(metrics.Get(Counter::kKvBytesWritten, "tree"), result.stats.rows * token_bytes);
  EXPECT_GT(metrics.Get(Counter::kKvBytesWritten, "copy"), 0);
  EXPECT_EQ(metrics.Total(Counter::kKvBytesStaged), 0);
  EXPECT_EQ(metrics.Total(Counter::kNworTokensRejected), 0);
}

// A pool far too small for all: trees shrink, commits fall back, the youngest are preempted, and
// nothing partial is ever seen.
TEST(KvContract, OutOfBlocks) {
  std::mt19937 random(9);
  std::vector<GenerateRequest> requests(4);
  for (GenerateRequest& request : requests) {
    request.prompt = RandomPrompt(random, 20, kVocabulary);
    request.sampling.max_tokens = 40;
    request.sampling.ignore_eos = true;
  }
  for (const DType dtype : {DType::kF32, DType::kF8E4M3, DType::kI8}) {
    EngineOptions options{.kv_dtype = dtype, .max_length = 128, .max_sequences = 4};
    const auto plain = RunBatch(Small().MakeEngine(options).get(), requests);
    std::vector<std::vector<int32_t>> answers;
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(requests[i].prompt);
      for (const int32_t id : plain[i].TokenIds()) answers.back().push_back(id);
    }
    SetLogLevel(LogLevel::kOff);
    for (const bool nwor : {true, false}) {
      options.kv_tokens = 80;
      options.kv_audit = true;
      options.step.nwor = nwor;
      options.step.budget = {.max_nodes = 24, .max_depth = 20};
      const auto engine = Small().MakeEngine(
          options, std::make_unique<OracleDrafter>(answers, kVocabulary, 0.9, 3));
      const auto spec = RunBatch(engine.get(), requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i << " nwor " << nwor;
      }
    }
    SetLogLevel(LogLevel::kWarning);
  }
}

// Without speculation the engine gives the tokens of a bare decoder with a cache of its own, and
// asks no drafter.
TEST(KvContract, OffIsIdentical) {
  GenerateRequest request = SmallRequest(40);
  request.sampling.ignore_eos = true;
  auto bare = SingleSequence::Create(Small().target.get(), Small().backend.get(),
                                     {.max_tokens = 64, .max_tree = 1});
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  std::vector<int32_t> expected = {bare->AppendGreedy(request.prompt).value()};
  while (expected.size() < 40) {
    expected.push_back(bare->AppendGreedy(std::span(&expected.back(), 1)).value());
  }
  int asked = 0;
  const auto drafter = [&asked] {
    return std::make_unique<ScriptedDrafter>([&](const DraftRequest&, TokenTree*) { ++asked; });
  };
  EXPECT_EQ(Small().MakeEngine(IdentityOptions())->Generate(request)->TokenIds(), expected);
  EXPECT_EQ(Small().MakeEngine(IdentityOptions(), drafter())->Generate(request)->TokenIds(),
            expected);
  EXPECT_GT(asked, 0);
  asked = 0;
  request.speculate = false;
  const auto engine = Small().MakeEngine(IdentityOptions(), drafter());
  EXPECT_EQ(engine->Generate(request)->TokenIds(), expected);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(engine->metrics().Get(Counter::kSpecVerifyPasses, "plain"), 40);
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecVerifyPasses), 40);
}

TEST(Scv, SkipsChunksAfterAMiss) {
  // A chain whose first 10 drafts are right, of 47: with chunks of 8 only two of six run.
  const auto plain = Small().MakeEngine(IdentityOptions())->Generate(SmallRequest(60)).value();
  const std::vector<int32_t> ids = plain.TokenIds();
  EngineOptions options = IdentityOptions();
  options.step.budget = {.max_nodes = 48, .max_depth = 47};
  options.step.scv_chunk_size = 8;
  bool drafted = false;
  const auto engine = Small().MakeEngine(
      options, std::make_unique<ScriptedDrafter>([&](const DraftRequest& request, TokenTree* tree) {
        if (drafted) return;
        drafted = true;
        const size_t done = request.tokens.size() - 5;
        for (int i = 0; i < 47; ++i) {
          const int32_t right = ids[done + i];
          tree->Add(i, i < 10 ? right : (right + 1) % kVocabulary, 1);
        }
      }));
  const auto result = engine->Generate(SmallRequest(60)).value();
  EXPECT_EQ(result.TokenIds(), ids);
  EXPECT_EQ(result.stats.accepted, 9);  // d8 is the second chunk's root, counted as a bonus
  EXPECT_EQ(engine->metrics().Get(Counter::kScvChunks, "skipped"), 4);
}

}  // namespace
}  // namespace talon
