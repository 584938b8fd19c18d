// A pass that breaks an invariant, or an audit that fails, in the target worker's engine.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/sessions/session_thread.h"
#include "engine/sessions/test_sessions.h"

namespace talon {
namespace {

// Answers of a call that runs and one that comes after it, once `spoil` has changed the sequence of
// session "a".
std::vector<Result<VerifyAnswer>> SpoiledCalls(SessionEngine* engine,
                                               const std::function<void(const Sequence&)>& spoil) {
  EXPECT_TRUE(RunCall(engine, FirstCall("a", Ten(), Chain({1}))).ok());
  const Session* session = nullptr;
  for (const auto& one : engine->sessions().all()) session = one.get();
  const int known = static_cast<int>(session->tokens.size());
  spoil(session->sequence);
  engine->Submit(DeltaCall("a", {7, 8}, known, Chain({2})));
  while (engine->HasWork()) engine->RunStep({});
  engine->Submit(FirstCall("b", Ten(), Chain({1})));
  while (engine->HasWork()) engine->RunStep({});
  std::vector<Result<VerifyAnswer>> answers;
  for (auto& one : engine->TakeFinished()) answers.push_back(std::move(one.answer));
  return answers;
}

TEST(BrokenSession, AuditCatchesAByteThatChanges) {
  const auto engine = MakeSessions(TestSessionOptions());
  const auto answers = SpoiledCalls(engine.get(), [&](const Sequence& sequence) {
    const KvLayer& layer = engine->kv().view().layers[0];
    auto* values = static_cast<uint8_t*>(layer.v_blocks) +
                   sequence.blocks[0] * engine->kv().shape().BlockBytes();
    uint8_t byte = 0;
    Small().backend->CopyOut(&byte, values, 1);
    byte ^= 4;
    Small().backend->CopyIn(values, &byte, 1);
  });
  ASSERT_EQ(answers.size(), 2);
  ExpectFailure(answers[0], StatusCode::kInternal, "INVARIANT");
  EXPECT_NE(answers[0].status().message().find("audit"), std::string::npos);
  EXPECT_EQ(answers[1].status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine->health().code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine->metrics().Total(Counter::kInternalErrors), 1);
}

TEST(BrokenSession, ABrokenInvariantEndsTheCallAndStopsTheEngineIfBlocksAreWrong) {
  const auto engine = MakeSessions(TestSessionOptions());
  const auto answers = SpoiledCalls(engine.get(), [&](const Sequence& sequence) {
    Sequence stolen = sequence;
    engine->kv().Free(&stolen);  // its blocks now have an owner less than users
  });
  ASSERT_EQ(answers.size(), 2);
  EXPECT_EQ(answers[0].status().code(), StatusCode::kInternal) << answers[0].status().message();
  EXPECT_EQ(answers[1].status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(engine->health().ok());
}

TEST(BrokenSession, TheThreadAnswersItsCallersAndSaysSoOnce) {
  auto engine = MakeSessions(TestSessionOptions());
  SessionEngine* inside = engine.get();
  std::atomic<int> stopped{0};
  {
    EXPECT_TRUE(RunCall(inside, FirstCall("a", Ten(), Chain({1}))).ok());
    Sequence stolen = inside->sessions().all().front()->sequence;
    inside->kv().Free(&stolen);
  }
  SessionThread thread(std::move(engine), std::chrono::seconds(60), [&] { ++stopped; });
  EXPECT_FALSE(thread.Verify(FirstCall("b", Ten(), Chain({1}))).ok());
  EXPECT_EQ(thread.Verify(FirstCall("c", Ten(), Chain({1}))).status().code(),
            StatusCode::kUnavailable);
  EXPECT_FALSE(thread.snapshot().health.ok());
  thread.Shutdown(std::chrono::seconds(300));
  EXPECT_EQ(stopped.load(), 1);
}

// An engine whose session "a" has blocks that are free already.
std::unique_ptr<SessionEngine> EngineWithStolenBlocks(SessionOptions options) {
  auto engine = MakeSessions(options);
  EXPECT_TRUE(RunCall(engine.get(), FirstCall("a", Ten(), Chain({1}))).ok());
  Sequence stolen = engine->sessions().all().front()->sequence;
  engine->kv().Free(&stolen);
  return engine;
}

// The blocks are found wrong outside of a step: where a session ends.
TEST(BrokenSession, EndingASessionWhoseBlocksAreWrongStopsTheEngine) {
  auto engine = EngineWithStolenBlocks(TestSessionOptions());
  const Metrics& metrics = engine->metrics();
  SessionThread thread(std::move(engine), std::chrono::seconds(60), [] {});
  EXPECT_EQ(thread.EndSession("a").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.EndSession("b").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.Verify(FirstCall("c", Ten(), Chain({1}))).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(metrics.Total(Counter::kInternalErrors), 1);
}

TEST(BrokenSession, CollectingASessionWhoseBlocksAreWrongStopsTheEngine) {
  SessionOptions options = TestSessionOptions();
  options.session_ttl = std::chrono::seconds(0);
  std::atomic<int> stopped{0};
  SessionThread thread(EngineWithStolenBlocks(options), std::chrono::seconds(0),
                       [&] { ++stopped; });
  while (stopped.load() == 0) std::this_thread::yield();
  EXPECT_EQ(thread.snapshot().health.code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.Verify(FirstCall("c", Ten(), Chain({1}))).status().code(),
            StatusCode::kUnavailable);
}

TEST(BrokenSession, DroppingACallOfASessionWhoseBlocksAreWrongStopsTheEngine) {
  const auto engine = EngineWithStolenBlocks(TestSessionOptions());
  const auto call = engine->Submit(DeltaCall("a", {7}, 1, Chain({2})));
  EXPECT_TRUE(engine->EndSession("a"));  // after that call
  EXPECT_TRUE(engine->health().ok());
  EXPECT_TRUE(engine->Drop(call));
  EXPECT_EQ(engine->health().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace talon
