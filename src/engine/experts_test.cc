// What an engine counts of a model with experts, and that speculation changes nothing of its text.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "base/log.h"
#include "engine/test_engine.h"
#include "model/test_model.h"
#include "spec/policy/verify_curve.h"

namespace talon {
namespace {

constexpr int kExperts = 8;
constexpr int kPerRow = 3;
class ExpertsEngine : public testing::Test {
 protected:
  ExpertsEngine() {
    const TempDirectory dir;
    WriteModel(dir.path(), ExpertsConfig("gpt_oss"), DType::kF32, 7);
    model_ = std::make_unique<TestModel>(dir.path());
  }
  std::unique_ptr<TestModel> model_;
};

TEST_F(ExpertsEngine, PassesCountTheExpertsThatTheyTouch) {
  if (std::getenv("TALON_TEST_DEVICE") != nullptr) GTEST_SKIP() << "the device does not count";
  GenerateRequest request{.prompt = {5, 17, 300, 42, 8}};
  request.sampling.max_tokens = 30;
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 128};
  const auto plain = model_->MakeEngine(options);
  std::vector<int32_t> answer = request.prompt;
  for (const int32_t id : plain->Generate(request).value().TokenIds()) answer.push_back(id);
  const Distribution one_row = plain->metrics().Get(Histogram::kExpertsTouched);
  EXPECT_GT(one_row.count, 20);
  EXPECT_EQ(one_row.Mean(), kPerRow);

  options.step.budget = {.max_nodes = 16, .max_depth = 8};
  const auto trees = model_->MakeEngine(
      options, std::make_unique<OracleDrafter>(std::vector<std::vector<int32_t>>{answer},
                                               kVocabulary, 0.5, 1));
  ASSERT_TRUE(trees->Generate(request).ok());
  const Distribution many_rows = trees->metrics().Get(Histogram::kExpertsTouched);
  EXPECT_GT(many_rows.Mean(), kPerRow + 1);
  EXPECT_LE(many_rows.Mean(), kExperts);
}

// Rows of equal tokens would choose the same experts, and trees would look cheap.
TEST_F(ExpertsEngine, VerifyCurveIsTimedWithRowsThatChooseDifferently) {
  if (std::getenv("TALON_TEST_DEVICE") != nullptr) GTEST_SKIP() << "the device does not count";
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 256, .max_sequences = 1};
  options.step.budget = {.max_nodes = 16, .max_depth = 8};
  const auto engine = model_->MakeEngine(options);
  const auto measured =
      MeasureVerifyCurve(model_->backend.get(), model_->target.get(), &engine->kv(), 16, 16);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const VerifyCurve& curve = *measured;
  ASSERT_EQ(curve.points().size(), 5u);
  EXPECT_EQ(curve.points()[0].experts, kPerRow);
  EXPECT_GT(curve.points()[1].experts, kPerRow);
  EXPECT_GT(curve.points()[4].experts, kExperts - 1);
}

class ExpertsIdentity : public testing::TestWithParam<const char*> {
 protected:
  ExpertsIdentity() {
    const TempDirectory dir;
    WriteModel(dir.path(), ExpertsConfig(GetParam()), DType::kF32, 31);
    model_ = std::make_unique<TestModel>(dir.path());
    SetLogLevel(LogLevel::kOff);  // small pools preempt
  }
  ~ExpertsIdentity() override { SetLogLevel(LogLevel::kWarning); }

  int Draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  bool OneIn(int n) { return Draw(1, n) == 1; }
  std::vector<GenerateRequest> DrawRequests();
  EngineOptions DrawOptions();
  // What changes with speculation, and how large the pool is.
  void DrawSpeculation(EngineOptions* options);

  std::unique_ptr<TestModel> model_;
  std::mt19937 random_;
};

std::vector<GenerateRequest> ExpertsIdentity::DrawRequests() {
  std::vector<GenerateRequest> requests(Draw(1, 6));
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest& request = requests[i];
    // Some prompts are equal, so that the cache is used.
    request.prompt = i > 0 && OneIn(3) ? requests[i - 1].prompt
                                       : RandomPrompt(random_, Draw(1, 60), kVocabulary);
    request.sampling.max_tokens = Draw(1, 40);
    request.sampling.seed = random_();
    request.sampling.temperature = 0.4f * static_cast<float>(Draw(0, 4));
    request.sampling.ignore_eos = OneIn(2);
    request.sampling.logprobs = Draw(0, 2);
    if (OneIn(4)) request.sampling.repetition_penalty = 1.3f;
    request.speculate = !OneIn(8);
  }
  return requests;
}

EngineOptions ExpertsIdentity::DrawOptions() {
  constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8};
  EngineOptions options{.kv_dtype = kKvTypes[Draw(0, 4)],
                        .block_size = OneIn(2) ? 8 : 16,
                        .max_length = 128,
                        .max_sequences = Draw(1, 6),
                        .prefill_chunk = Draw(1, 50)};
  options.prefix_cache = OneIn(2);
  return options;
}

void ExpertsIdentity::DrawSpeculation(EngineOptions* options) {
  options->step.budget = {.max_nodes = Draw(1, 64), .max_depth = Draw(1, 16)};
  options->step.nwor = !OneIn(4);
  if (options->step.nwor) options->step.scv_chunk_size = OneIn(2) ? Draw(1, 12) : 0;
  if (options->step.nwor && OneIn(4)) {
    options->step.specpv = {.enabled = true,
                            .block_size = options->block_size,
                            .sink_blocks = 1,
                            .retrieval_blocks = Draw(1, 3),
                            .window_blocks = 2,
                            .buffer_tokens = Draw(8, 40),
                            .partial_threshold = Draw(32, 64)};
  }
  // Little more than the longest sequence needs.
  if (OneIn(2)) options->kv_tokens = options->PoolTokens(options->max_length) + Draw(0, 48);
}

// Trees, chunks, batches, pools, caches and temperatures at random; TALON_CASES sets which.
TEST_P(ExpertsIdentity, RandomCasesGivePlainTokens) {
  const CaseRange cases = WantedCases(24);  // some of them verify partially
  int64_t accepted = 0, partial = 0, preempted = 0, chunks = 0;
  for (int i = cases.first; i < cases.end; ++i) {
    random_.seed(i);
    const std::vector<GenerateRequest> requests = DrawRequests();
    EngineOptions options = DrawOptions();
    const auto plain = RunBatch(model_->MakeEngine(options).get(), requests);
    std::vector<std::vector<int32_t>> answers;
    for (size_t j = 0; j < requests.size(); ++j) {
      answers.push_back(requests[j].prompt);
      for (const int32_t id : plain[j].TokenIds()) answers.back().push_back(id);
    }
    DrawSpeculation(&options);
    const auto engine =
        model_->MakeEngine(options, std::make_unique<OracleDrafter>(answers, kVocabulary, 0.7, i));
    const auto spec = RunBatch(engine.get(), requests);
    for (size_t j = 0; j < requests.size(); ++j) {
      SCOPED_TRACE(fmt::format("case {}, request {}", i, j));
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(plain[j], spec[j]));
      accepted += spec[j].stats.accepted;
      partial += spec[j].stats.partial_passes;
    }
    preempted += engine->metrics().Total(Counter::kRequestPreemptions);
    chunks += engine->metrics().Total(Counter::kScvChunks);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(partial, 0);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(chunks, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExpertsIdentity,
                         testing::Values("gpt_oss", "gpt_oss_mxfp4", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace talon
