// A model whose logits are NaN, and a request that bans every token: neither has a token to
// give, for different reasons.
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "engine/sessions/test_sessions.h"
#include "model/test_model.h"

namespace talon {
namespace {

constexpr const char* kNotFinite = "the model's logits are not finite";

// The small model with every byte of its weights 0xFF, which is NaN in every float format.
void WriteBrokenModel(const std::filesystem::path& dir) {
  const std::filesystem::path source =
      std::filesystem::path(TALON_SOURCE_DIR) / "tests/data/goldens/llama3";
  for (const char* name : {"config.json", "model.safetensors"}) {
    auto contents = ReadFile(source / name);
    EXPECT_TRUE(contents.ok()) << contents.status().message();
    if (std::string_view(name) == "model.safetensors") {
      uint64_t header = 0;
      std::memcpy(&header, contents->data(), sizeof(header));
      std::fill(contents->begin() + static_cast<int64_t>(sizeof(header) + header), contents->end(),
                '\xff');
    }
    const Status written = WriteFile(dir / name, *contents);
    EXPECT_TRUE(written.ok()) << written.message();
  }
}

TestModel& Broken() {
  static TestModel model = [] {
    const TempDirectory dir;
    WriteBrokenModel(dir.path());
    return TestModel(dir.path());
  }();
  return model;
}

EngineOptions BrokenLogitsOptions(AcceptMode accept) {
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160};
  options.step.accept = accept;
  options.step.thresholds = {.single = 0.5f, .acc = 0.5f};
  return options;
}

TEST(BrokenLogits, FailTheRequestInEveryAcceptMode) {
  const SamplingParams ways[] = {
      {}, {.temperature = 1, .seed = 7}, {.repetition_penalty = 1.2f}, {.logprobs = 2}};
  for (const AcceptMode accept :
       {AcceptMode::kMatch, AcceptMode::kThreshold, AcceptMode::kRejection}) {
    for (const SamplingParams& sampling : ways) {
      const auto engine = Broken().MakeEngine(BrokenLogitsOptions(accept));
      const GenerateResult result =
          RunBatch(engine.get(), {{.prompt = Ten(), .sampling = sampling}})[0];
      EXPECT_EQ(result.finish, FinishReason::kError) << FinishReasonName(result.finish);
      EXPECT_EQ(result.error.code(), StatusCode::kInternal);
      EXPECT_EQ(result.error.message(), kNotFinite);
      EXPECT_TRUE(result.tokens.empty());
    }
  }
}

TEST(BrokenLogits, EndASessionsCall) {
  auto made = SessionEngine::Create(
      {.backend = Broken().backend.get(), .target = Broken().target.get()}, TestSessionOptions());
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto answer = RunCall(made->get(), FirstCall("a", Ten(), Chain({1, 2})));
  ExpectFailure(answer, StatusCode::kInternal, "INVARIANT");
  EXPECT_NE(answer.status().message().find(kNotFinite), std::string::npos);
}

TEST(BrokenLogits, BanningEveryTokenFinishesWithItsOwnReason) {
  for (const AcceptMode accept : {AcceptMode::kMatch, AcceptMode::kRejection}) {
    for (const float temperature : {0.0f, 1.0f}) {
      GenerateRequest request = Plain(Ten(), 4);
      request.sampling.temperature = temperature;
      for (int32_t token = 0; token < kVocabulary; ++token) {
        request.sampling.bad_words.push_back({token});
      }
      const auto engine = Small().MakeEngine(BrokenLogitsOptions(accept));
      const GenerateResult result = RunBatch(engine.get(), {std::move(request)})[0];
      EXPECT_EQ(result.finish, FinishReason::kDeadEnd);
      EXPECT_STREQ(FinishReasonName(result.finish), "all_tokens_banned");
      EXPECT_TRUE(result.error.ok());
    }
  }
}

// Token 0 is also what the argmax of a broken row is.
TEST(BrokenLogits, TokenZeroIsATokenLikeAnyOther) {
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateRequest request = Plain(Ten(), 4);
    request.sampling.temperature = temperature;
    for (int32_t token = 1; token < kVocabulary; ++token) {
      request.sampling.bad_words.push_back({token});
    }
    const auto engine = Small().MakeEngine(BrokenLogitsOptions(AcceptMode::kMatch));
    const GenerateResult result = RunBatch(engine.get(), {std::move(request)})[0];
    EXPECT_EQ(result.finish, FinishReason::kLength);
    EXPECT_EQ(result.TokenIds(), (std::vector<int32_t>{0, 0, 0, 0}));
  }
}

}  // namespace
}  // namespace talon
