// What a session engine refuses, and which sessions make way for others.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/sessions/session_engine.h"
#include "engine/sessions/test_sessions.h"

namespace talon {
namespace {

using std::chrono::seconds;

TEST(SessionEngine, RefusedCalls) {
  const auto engine = MakeSessions(TestSessionOptions());
  const auto check = [&](const char* detail, const std::function<void(VerifyCall*)>& spoil) {
    VerifyCall call = FirstCall("a", Ten(), Chain({1, 2, 3}));
    EXPECT_TRUE(engine->Check(call).ok());
    spoil(&call);
    ExpectFailure(engine->Check(call), StatusCode::kInvalidArgument, detail);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  check("PROMPT_TOO_LONG", [](VerifyCall* call) { call->prompt.assign(121, 1); });
  check("PROMPT_TOO_LONG", [](VerifyCall* call) { call->delta.assign(121, 1); });
  check("TOKEN_OUT_OF_RANGE", [](VerifyCall* call) { call->prompt[3] = kVocabulary; });
  check("TOKEN_OUT_OF_RANGE", [](VerifyCall* call) { call->delta = {-1}; });
  check("TOKEN_OUT_OF_RANGE", [](VerifyCall* call) { call->drafts.tokens[1] = 1 << 30; });
  check("TOKEN_OUT_OF_RANGE", [](VerifyCall* call) { call->stop_token_ids = {-5}; });
  check("TREE_TOO_LARGE",
        [](VerifyCall* call) { call->drafts = Chain(std::vector<int32_t>(1'000'000, 1)); });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.parents = {-1, 2, 1}; });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.parents = {0, 0, 1}; });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.parents = {-2, 0, 1}; });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.parents.pop_back(); });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.draws.resize(2); });
  check("TREE_INVALID", [](VerifyCall* call) {
    call->drafts.parents = {-1, -1, -1};
    call->drafts.tokens = {4, 5, 4};
  });
  check("TREE_INVALID", [](VerifyCall* call) { call->drafts.probs[2] = kNan; });
  check("BAD_TEMPERATURE", [](VerifyCall* call) { call->temperature = kNan; });
  check("BAD_TEMPERATURE", [](VerifyCall* call) { call->temperature = -0.1f; });
  check("BAD_SAMPLING", [](VerifyCall* call) { call->top_p = 2; });
  check("BAD_SAMPLING", [](VerifyCall* call) { call->stop_token_ids.assign(2000, 1); });
  check("BAD_ID", [](VerifyCall* call) { call->session_id.assign(5000, 'x'); });
}

TEST(SessionEngine, DeepTreesAreRefused) {
  SessionOptions options = TestSessionOptions();
  options.max_tree_nodes = 100;
  options.engine.max_sequences = 2;
  const auto engine = MakeSessions(options);
  EXPECT_TRUE(engine->Check(FirstCall("a", Ten(), Chain(std::vector<int32_t>(64, 1)))).ok());
  ExpectFailure(engine->Check(FirstCall("a", Ten(), Chain(std::vector<int32_t>(65, 1)))),
                StatusCode::kInvalidArgument, "TREE_INVALID");
}

TEST(SessionEngine, CallWithoutBlocksFailsAndKeepsItsSession) {
  SessionOptions options = TestSessionOptions();
  options.engine.kv_tokens = 48;  // 3 blocks
  const auto engine = MakeSessions(options);
  const std::vector<int32_t> truth = PlainTokens(Ten(), 3);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({truth[0]}))).ok());
  const std::vector<int32_t> long_prompt(60, 5);
  ExpectFailure(RunCall(engine.get(), FirstCall("a", long_prompt, Chain({1}))),
                StatusCode::kResourceExhausted, "KV_FULL");
  ExpectFailure(RunCall(engine.get(), FirstCall("b", long_prompt, Chain({1}))),
                StatusCode::kResourceExhausted, "KV_FULL");
  EXPECT_EQ(engine->sessions().size(), 1);
  const auto next = RunCall(engine.get(), DeltaCall("a", {truth[1]}, 11, Chain({Other(truth[2])})));
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_TRUE(next->cache_hit);
  EXPECT_EQ(next->correction, truth[2]);
  // An idle session makes way for one that fits.
  const std::vector<int32_t> fitting(40, 5);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", fitting, Chain({1}))).ok());
  EXPECT_EQ(engine->sessions().Find("a"), nullptr);
  EXPECT_EQ(engine->metrics().Get(Counter::kRemoteSessionEvictions, "lru"), 1);
}

// Its K/V was already exchanged for known blocks of the other context when room was missing.
TEST(SessionEngine, CallWithoutBlocksForACachedPrefixKeepsItsSession) {
  SessionOptions options = TestSessionOptions();
  options.engine.kv_tokens = 96;  // 6 blocks
  options.engine.prefix_cache = true;
  const auto engine = MakeSessions(options);
  std::mt19937 random(3);
  std::vector<int32_t> other = RandomPrompt(random, 70, kVocabulary);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", other, Chain({1}))).ok());
  engine->EndSession("b");
  const std::vector<int32_t> truth = PlainTokens(Ten(), 3);
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({truth[0]}))).ok());
  other.resize(110, 5);
  ExpectFailure(RunCall(engine.get(), FirstCall("a", other, Chain({1}))),
                StatusCode::kResourceExhausted, "KV_FULL");
  const Status status = engine->CheckIntegrity();
  EXPECT_TRUE(status.ok()) << status.message();
  const auto next = RunCall(engine.get(), DeltaCall("a", {truth[1]}, 11, Chain({Other(truth[2])})));
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next->correction, truth[2]);
}

// Trees that do not fit in one pass together are verified one after the other.
TEST(SessionEngine, TreesShareAPassAsFarAsTheyFit) {
  auto target = Decoder::Load(std::string(TALON_SOURCE_DIR) + "/tests/data/goldens/llama3",
                              Small().backend.get(), {.max_rows = 1100, .max_output_rows = 1100});
  ASSERT_TRUE(target.ok()) << target.status().message();
  SessionOptions options = TestSessionOptions();
  options.max_tree_nodes = 400;
  auto engine =
      SessionEngine::Create({.backend = Small().backend.get(), .target = target->get()}, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_LT((*engine)->options().TreeRows(), 3 * 401);
  DraftForest wide;
  for (int i = 0; i < 400; ++i) {
    wide.tokens.push_back(i);
    wide.parents.push_back(-1);
    wide.probs.push_back(0.1f);
  }
  const auto answers = RunCalls(
      engine->get(),
      {FirstCall("a", {1, 2}, wide), FirstCall("b", {1, 3}, wide), FirstCall("c", {1, 4}, wide)});
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].ok()) << answers[i].status().message();
    std::vector<int32_t> tokens = answers[i]->accepted;
    tokens.push_back(answers[i]->correction.value());
    EXPECT_EQ(tokens,
              PlainTokens({1, static_cast<int32_t>(2 + i)}, static_cast<int>(tokens.size())));
  }
}

TEST(SessionEngine, LeastRecentlyUsedSessionMakesWay) {
  const auto engine = MakeSessions(TestSessionOptions(2));
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", Ten(), Chain({1}))).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("c", Ten(), Chain({1}))).ok());
  EXPECT_EQ(engine->sessions().Find("b"), nullptr);
  EXPECT_NE(engine->sessions().Find("a"), nullptr);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST(SessionEngine, SessionsWithEarlierCallsStay) {
  const auto engine = MakeSessions(TestSessionOptions(2));
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", Ten(), Chain({1}))).ok());
  const auto answers = RunCalls(
      engine.get(), {FirstCall("a", Ten(), Chain({1})), FirstCall("c", Ten(), Chain({1}))});
  for (const auto& answer : answers) EXPECT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_NE(engine->sessions().Find("a"), nullptr);
  EXPECT_EQ(engine->sessions().Find("b"), nullptr);
}

// It was refused as long as the sessions' own clients called again quickly enough.
TEST(SessionEngine, SessionsWithLaterCallsMakeWay) {
  const auto engine = MakeSessions(TestSessionOptions(2));
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", Ten(), Chain({1}))).ok());
  const auto answers =
      RunCalls(engine.get(), {FirstCall("c", Ten(), Chain({1})), FirstCall("a", Ten(), Chain({1})),
                              FirstCall("b", Ten(), Chain({1}))});
  for (const auto& answer : answers) EXPECT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST(SessionEngine, CollectorEndsIdleSessions) {
  const auto engine = MakeSessions(TestSessionOptions());
  const SessionEngine::TimePoint start;
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1})), start).ok());
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("b", Ten(), Chain({1})), start + seconds(200)).ok());
  EXPECT_EQ(engine->Collect(start + seconds(299)), 0);
  const auto waiting = engine->Submit(FirstCall("a", Ten(), Chain({1})));
  EXPECT_EQ(engine->Collect(start + seconds(400)), 0);  // "a" is busy
  EXPECT_TRUE(engine->Drop(waiting));
  EXPECT_EQ(engine->Collect(start + seconds(400)), 1);
  EXPECT_EQ(engine->sessions().Find("a"), nullptr);
  EXPECT_EQ(engine->Collect(start + seconds(500)), 1);
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
  EXPECT_EQ(engine->metrics().Get(Counter::kRemoteSessionEvictions, "ttl"), 2);
  EXPECT_EQ(engine->metrics().Get(Gauge::kRemoteSessions), 0);
}

TEST(SessionEngine, EndSessionWaitsForItsCalls) {
  const auto engine = MakeSessions(TestSessionOptions());
  EXPECT_FALSE(engine->EndSession("a"));
  EXPECT_FALSE(engine->EndSession(""));
  ASSERT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  engine->Submit(FirstCall("a", Ten(), Chain({2})));
  EXPECT_TRUE(engine->EndSession("a"));
  engine->Submit(DeltaCall("a", {1}, 0, Chain({2})));
  std::vector<SessionEngine::Finished> finished;
  while (engine->HasWork()) {
    engine->RunStep({});
    for (auto& one : engine->TakeFinished()) finished.push_back(std::move(one));
  }
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_TRUE(finished[0].answer.ok());
  ExpectFailure(finished[1].answer, StatusCode::kFailedPrecondition, "CACHE_EVICTED_DELTA_ONLY");
  EXPECT_EQ(engine->sessions().size(), 0);
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
}

}  // namespace
}  // namespace talon
