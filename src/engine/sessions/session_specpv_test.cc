// Partial verification of sessions.
#include <gtest/gtest.h>

#include "base/log.h"
#include "engine/sessions/session_engine.h"
#include "engine/sessions/test_sessions.h"

namespace talon {
namespace {

SpecPvConfig TinyBudget(SpecPvMode mode) {
  SpecPvConfig config;
  config.enabled = true;
  config.sink_blocks = 1;
  config.retrieval_blocks = 1;
  config.window_blocks = 1;
  config.buffer_tokens = 80;
  config.partial_threshold = 40;
  config.full_refresh_interval = 5;
  config.mode = mode;
  return config;
}

// Token by token, a session in fast mode is what a local sequence is.
TEST(SessionEngine, FastModeIsThatOfLocalSequences) {
  std::mt19937 random(12);
  const std::vector<int32_t> prompt = RandomPrompt(random, 90, kVocabulary);
  EngineOptions local{.kv_dtype = DType::kF32, .max_length = 160, .max_sequences = 1};
  local.step.specpv = TinyBudget(SpecPvMode::kFast);
  const auto engine = Small().MakeEngine(local);
  const auto expected = RunBatch(engine.get(), {Plain(prompt, 40)})[0].TokenIds();
  ASSERT_NE(expected, PlainTokens(prompt, 40)) << "the budget should show";

  SessionOptions options = TestSessionOptions();
  options.engine.step.specpv = TinyBudget(SpecPvMode::kFast);
  const auto sessions = MakeSessions(options);
  std::vector<int32_t> tokens;
  VerifyCall call = FirstCall("a", prompt, {});
  call.decode_on_empty = true;
  while (tokens.size() < 40) {
    const auto answer = RunCall(sessions.get(), call);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer->prefix_length, 90 + static_cast<int>(tokens.size()));
    tokens.push_back(*answer->correction);
    call = DeltaCall("a", {*answer->correction}, answer->prefix_length, {});
    call.decode_on_empty = true;
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_GT(sessions->metrics().Get(Counter::kSpecVerifyPasses, "partial"), 20);
}

// Whatever rewinds ends the provisional tail; trees larger than the buffer are verified in full.
TEST(SessionEngine, FastModeSurvivesRandomCalls) {
  std::mt19937 random(13);
  SessionOptions options = TestSessionOptions();
  options.max_tree_nodes = 100;
  options.engine.step.specpv = TinyBudget(SpecPvMode::kFast);
  options.engine.max_sequences = 2;
  const auto engine = MakeSessions(options);
  std::vector<int32_t> context = RandomPrompt(random, 90, kVocabulary);
  int length = 0;
  for (int i = 0; i < 300; ++i) {
    VerifyCall call = FirstCall("a", {}, {});
    if (length == 0 || random() % 10 == 0 || context.size() > 115) {
      context.resize(80 + random() % 15, 7);
      call.prompt = context;
    } else {
      if (random() % 5 == 0) context.push_back(static_cast<int32_t>(random() % kVocabulary));
      call.delta.assign(context.begin() + length, context.end());
      call.expected_prefix = length;
    }
    call.drafts = RandomForest(random, {}, random() % 8 == 0 ? 100 : 20, kVocabulary);
    call.decode_on_empty = random() % 4 != 0;
    const auto answer = RunCall(engine.get(), call);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    context.insert(context.end(), answer->accepted.begin(), answer->accepted.end());
    length = answer->prefix_length;
    ASSERT_EQ(length, static_cast<int>(context.size()));
    if (answer->correction) context.push_back(*answer->correction);
  }
  EXPECT_GT(engine->metrics().Get(Counter::kSpecVerifyPasses, "partial"), 20);
  engine->EndSession("a");
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST(SessionEngine, ExactModeVerifiesInFull) {
  std::mt19937 random(12);
  const std::vector<int32_t> prompt = RandomPrompt(random, 90, kVocabulary);
  SetLogLevel(LogLevel::kOff);
  SessionOptions options = TestSessionOptions();
  options.engine.step.specpv = TinyBudget(SpecPvMode::kExact);
  options.max_prompt_tokens = 160;
  const auto engine = MakeSessions(options);
  SetLogLevel(LogLevel::kWarning);
  TestClient client("a", Plain(prompt, 40), PlainTokens(prompt, 40), 3);
  while (!client.done()) {
    const VerifyCall call = client.NextCall();
    client.Take(call, RunCall(engine.get(), call));
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_EQ(engine->metrics().Get(Counter::kSpecVerifyPasses, "partial"), 0);
}

}  // namespace
}  // namespace talon
