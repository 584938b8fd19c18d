// Times of prompts on a device, whose passes go on after they were queued.
#include <gtest/gtest.h>

#include <chrono>

#include "engine/step/lagging_backend.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

constexpr std::chrono::milliseconds kLag{20};
constexpr double kLagSeconds = 0.02;
constexpr int kChunk = 16;
constexpr int kChunks = 4;

class PromptTime : public testing::Test {
 protected:
  PromptTime() : backend_(NewCpuBackend(2), kLag) {
    auto loaded = Decoder::Load(TALON_SOURCE_DIR "/tests/data/goldens/llama3", &backend_,
                                {.max_rows = 64, .max_output_rows = 16});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    target_ = std::move(loaded).value();
    auto engine = Engine::Create({.backend = &backend_, .target = target_.get()},
                                 {.max_length = 128, .max_sequences = 2, .prefill_chunk = kChunk});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
  }
  GenerateRequest Request(int tokens) {
    GenerateRequest request{.prompt = RandomPrompt(random_, kChunks * kChunk + 1, 512)};
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    return request;
  }

  std::mt19937 random_{3};
  LaggingBackend backend_;
  std::unique_ptr<Decoder> target_;
  std::unique_ptr<Engine> engine_;
};

// The last chunk was not waited for: its time was the first token's.
TEST_F(PromptTime, EndsWhenItsLastChunkIsComputed) {
  const RequestId id = engine_->Submit(Request(3)).value();
  for (int chunk = 0; chunk < kChunks; ++chunk) engine_->RunStep();
  EXPECT_EQ(backend_.in_flight(), 0);
  while (engine_->HasWork()) engine_->RunStep();
  const RequestStats stats = engine_->Take(id).value().stats;
  EXPECT_EQ(stats.passes, 3);
  EXPECT_GE(stats.prompt_seconds, kChunks * kLagSeconds);
  EXPECT_GE(stats.decode_seconds, 3 * kLagSeconds);
  EXPECT_GE(stats.first_token_seconds, (kChunks + 1) * kLagSeconds);
  EXPECT_LE(stats.first_token_seconds, stats.prompt_seconds + stats.decode_seconds);
}

// All chunks were queued at once, so a request that came meanwhile waited for the last of them.
TEST_F(PromptTime, TheHostIsAtMostOnePassAhead) {
  ASSERT_TRUE(engine_->Submit(Request(3)).ok());
  ASSERT_TRUE(engine_->Submit(Request(3)).ok());
  engine_->RunStep();
  EXPECT_EQ(backend_.in_flight(), 1);  // the next step is planned while it runs
  while (engine_->HasWork()) engine_->RunStep();
  EXPECT_EQ(backend_.most_in_flight(), 1);
}

// Nothing comes after the last prompt row that would be waited for.
TEST_F(PromptTime, ARequestWithoutTokensHasNoFirstToken) {
  const RequestId id = engine_->Submit(Request(0)).value();
  while (engine_->HasWork()) engine_->RunStep();
  const RequestStats stats = engine_->Take(id).value().stats;
  EXPECT_EQ(stats.first_token_seconds, -1);
  EXPECT_GE(stats.prompt_seconds, kChunks * kLagSeconds);
}

}  // namespace
}  // namespace talon
