// A step that breaks an invariant fails its requests. The engine goes on with the others if the KV
// cache is in order, else it stops for good.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/contain.h"
#include "engine/engine_thread.h"
#include "engine/health.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

constexpr int kAtOnce = 3;

EngineOptions BrokenStepOptions() {
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160, .max_sequences = kAtOnce};
  options.step.budget = {.max_nodes = 4, .max_depth = 3, .top_k = 1};
  return options;
}

std::vector<GenerateRequest> Requests(int count) {
  std::mt19937 random(11);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(
        {.prompt = RandomPrompt(random, 20 + i, 200), .sampling = {.max_tokens = 12}});
  }
  return requests;
}

// Proposes a random node and breaks in one of its members, at its `at`-th call.
class BreakingDrafter : public Drafter {
 public:
  enum class Place { kBegin, kPropose, kObserve, kEnd };
  BreakingDrafter(Place place, int at, std::function<void()> breaks)
      : place_(place), left_(at), breaks_(std::move(breaks)) {}

  std::string_view name() const override { return "BREAKING"; }
  Status Begin(SequenceId, std::span<const int32_t>) override {
    Reach(Place::kBegin);
    return OkStatus();
  }
  void Propose(std::span<const DraftRequest>, std::span<TokenTree> trees) override {
    Reach(Place::kPropose);
    for (TokenTree& tree : trees) tree.Add(0, 7, 0.5f);
  }
  void Observe(SequenceId, std::span<const int32_t>) override { Reach(Place::kObserve); }
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override { Reach(Place::kEnd); }

 private:
  void Reach(Place place) {
    if (place == place_ && --left_ == 0) breaks_();
  }
  Place place_;
  int left_;
  std::function<void()> breaks_;
};

using Place = BreakingDrafter::Place;

void BreakInvariant() { TALON_CHECK(false, "by the test"); }

std::vector<GenerateResult> RunAll(Engine* engine, std::vector<GenerateRequest> requests) {
  std::vector<RequestId> ids;
  for (GenerateRequest& request : requests)
    ids.push_back(engine->Submit(std::move(request)).value());
  for (int steps = 0; engine->HasWork() && steps < 1000; ++steps) engine->RunStep();
  std::vector<GenerateResult> results;
  for (const RequestId id : ids) results.push_back(engine->Take(id).value());
  return results;
}

std::vector<int32_t> TokensOf(const GenerateResult& result) {
  std::vector<int32_t> tokens;
  for (const EmittedToken& token : result.tokens) tokens.push_back(token.token);
  return tokens;
}

TEST(BrokenStep, FailsItsRequestsAndTheOthersGoOn) {
  const auto plain = RunAll(Small().MakeEngine(BrokenStepOptions()).get(), Requests(kAtOnce + 2));
  for (const Place place : {Place::kBegin, Place::kPropose, Place::kObserve}) {
    const auto engine = Small().MakeEngine(
        BrokenStepOptions(), std::make_unique<BreakingDrafter>(place, kAtOnce + 1, BreakInvariant));
    auto requests = Requests(kAtOnce + 2);
    std::vector<std::vector<int32_t>> delivered(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].on_update = [&, i](const RequestUpdate& update) {
        for (const EmittedToken& token : update.tokens) delivered[i].push_back(token.token);
      };
    }
    const auto results = RunAll(engine.get(), std::move(requests));
    int failed = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      const GenerateResult& result = results[i];
      EXPECT_EQ(TokensOf(result), delivered[i]) << i;
      if (result.finish == FinishReason::kError) {
        ++failed;
        EXPECT_EQ(result.error.code(), StatusCode::kInternal);
        EXPECT_NE(result.error.message().find("by the test"), std::string::npos);
      } else {
        EXPECT_EQ(TokensOf(result), TokensOf(plain[i])) << i;
      }
    }
    EXPECT_GE(failed, 1);
    EXPECT_LE(failed, kAtOnce);
    EXPECT_TRUE(engine->health().ok()) << engine->health().message();
    EXPECT_EQ(engine->metrics().Total(Counter::kInternalErrors), 1);
    EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
    const Status integrity = engine->CheckIntegrity();
    EXPECT_TRUE(integrity.ok()) << integrity.message();
  }
}

// The engine after `breaks` was called in a step with `Requests(kAtOnce + 2)`.
void ExpectStopped(const std::function<void(Engine*)>& breaks, Place place,
                   const std::string& reason) {
  std::unique_ptr<Engine> engine;
  engine = Small().MakeEngine(BrokenStepOptions(), std::make_unique<BreakingDrafter>(
                                                       place, 2, [&] { breaks(engine.get()); }));
  const auto results = RunAll(engine.get(), Requests(kAtOnce + 2));
  EXPECT_FALSE(engine->HasWork());
  EXPECT_EQ(engine->health().code(), StatusCode::kUnavailable);
  EXPECT_NE(engine->health().message().find(reason), std::string::npos)
      << engine->health().message();
  EXPECT_EQ(results.back().finish, FinishReason::kError);  // it waited
  EXPECT_EQ(results.back().error.code(), StatusCode::kUnavailable);
  EXPECT_EQ(engine->Submit(Requests(1)[0]).status().code(), StatusCode::kUnavailable);
}

TEST(BrokenStep, StopsTheEngineIfBlocksAreLost) {
  ExpectStopped(
      [](Engine* engine) {
        const Sequence none;
        (void)engine->kv().Reserve(none, 1);  // and it is never released
        BreakInvariant();
      },
      Place::kPropose, "references");
}

TEST(BrokenStep, StopsTheEngineIfARequestCannotBeFreed) {
  ExpectStopped([](Engine*) { BreakInvariant(); }, Place::kEnd, "by the test");
}

TEST(BrokenStep, StopsTheEngineIfTheDeviceFails) {
  ExpectStopped([](Engine*) { throw DeviceFault("the device is lost"); }, Place::kObserve,
                "the device is lost");
}

TEST(BrokenStep, AuditCatchesAByteThatChangesInACommittedBlock) {
  for (const bool audit : {false, true}) {
    EngineOptions options = BrokenStepOptions();
    options.kv_audit = audit;
    const auto engine = Small().MakeEngine(options);
    std::vector<size_t> delivered(kAtOnce, 0);
    auto requests = Requests(kAtOnce);
    std::vector<RequestId> ids;
    for (int i = 0; i < kAtOnce; ++i) {
      requests[i].on_update = [&, i](const RequestUpdate& update) {
        delivered[i] += update.tokens.size();
      };
      ids.push_back(engine->Submit(std::move(requests[i])).value());
    }
    for (int step = 0; step < 4; ++step) engine->RunStep();
    EXPECT_TRUE(engine->health().ok());
    const std::vector<size_t> before = delivered;
    const KvLayer& layer = engine->kv().view().layers[1];
    const int32_t block = engine->Sequences()[1]->blocks[0];
    auto* keys = static_cast<uint8_t*>(layer.k_blocks) + block * engine->kv().shape().BlockBytes();
    uint8_t byte = 0;
    Small().backend->CopyOut(&byte, keys, 1);
    byte ^= 1;
    Small().backend->CopyIn(keys, &byte, 1);
    engine->RunStep();
    EXPECT_EQ(engine->health().ok(), !audit);
    EXPECT_EQ(engine->metrics().Total(Counter::kInternalErrors), audit ? 1 : 0);
    if (!audit) continue;
    EXPECT_EQ(delivered, before);  // nothing of that step leaves the engine
    EXPECT_FALSE(engine->HasWork());
    const GenerateResult result = engine->Take(ids[1]).value();
    EXPECT_NE(result.error.message().find("audit: committed token 0 of sequence"),
              std::string::npos)
        << result.error.message();
  }
}

TEST(BrokenStep, AStoppedEngineAnswersItsCallersAndSaysSoOnce) {
  std::atomic<int> stopped{0};
  EngineThread thread(
      Small().MakeEngine(
          BrokenStepOptions(),
          std::make_unique<BreakingDrafter>(Place::kPropose, 3, [] { throw DeviceFault("lost"); })),
      EngineThread::kMaxWaiting, [&] { ++stopped; });
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (GenerateRequest& request : Requests(kAtOnce + 2)) {
    auto stream = thread.Submit(std::move(request));
    if (stream.ok()) streams.push_back(*stream);
  }
  for (const auto& stream : streams) {
    while (!stream->done()) (void)stream->Next(std::chrono::milliseconds(100));
    EXPECT_EQ(stream->result().error.code(), StatusCode::kUnavailable);
  }
  while (stopped.load() == 0) std::this_thread::yield();  // the snapshot follows the answers
  EXPECT_EQ(thread.snapshot().health.code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.Submit(Requests(1)[0]).status().code(), StatusCode::kUnavailable);
  thread.Shutdown(std::chrono::seconds(300));
  EXPECT_EQ(stopped.load(), 1);
}

TEST(EngineHealth, AnAuditThatBreaksStopsTheEngine) {
  Metrics metrics;
  EngineHealth health(&metrics);
  testing::internal::CaptureStderr();
  health.StepBroke(Internal("an odd step"), [] { return OkStatus(); });
  EXPECT_TRUE(health.ok());
  const std::string survived = testing::internal::GetCapturedStderr();
  EXPECT_NE(survived.find("an odd step"), std::string::npos) << survived;
  EXPECT_EQ(survived.find("has stopped"), std::string::npos) << survived;
  testing::internal::CaptureStderr();
  health.StepBroke(Internal("a step"), []() -> Status { throw DeviceFault("the device is lost"); });
  const std::string stopped = testing::internal::GetCapturedStderr();
  EXPECT_NE(stopped.find("the engine has stopped"), std::string::npos) << stopped;
  EXPECT_EQ(health.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(health.status().message().find("the device is lost"), std::string::npos);
  EXPECT_EQ(metrics.Total(Counter::kInternalErrors), 2);
}

TEST(EngineHealth, ADeviceThatFailedIsNotAudited) {
  EngineHealth health(nullptr);
  health.StepBroke(Unavailable("lost"), []() -> Status {
    ADD_FAILURE();
    return OkStatus();
  });
  EXPECT_FALSE(health.ok());
}

TEST(EngineHealth, WhatStopsTheEngineIsCountedOnce) {
  Metrics metrics;
  EngineHealth health(&metrics);
  health.StopIfBroken([] {});
  EXPECT_TRUE(health.ok());
  for (int i = 0; i < 3; ++i) health.StopIfBroken([] { TALON_CHECK(false, "by the test"); });
  EXPECT_NE(health.status().message().find("by the test"), std::string::npos);
  EXPECT_EQ(metrics.Total(Counter::kInternalErrors), 1);
}

}  // namespace
}  // namespace talon
