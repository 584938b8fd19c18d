// What an engine counts of a model with experts.
#include <gtest/gtest.h>

#include "base/json.h"
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

}  // namespace
}  // namespace talon
