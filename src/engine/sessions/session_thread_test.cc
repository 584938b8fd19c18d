// Many clients at once on one target, each with the text of plain decoding.
#include "engine/sessions/session_thread.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/sessions/test_session_client.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<SessionEngine> MakeSessions(int max_sessions) {
  SessionOptions options;
  options.engine = {.kv_dtype = DType::kF32,
                    .max_length = 128,
                    .max_sequences = 4,
                    .prefill_chunk = 32,
                    .kv_audit = true,
                    .prefix_cache = true};
  options.max_sessions = max_sessions;
  options.max_tree_nodes = 24;
  auto made = SessionEngine::Create(
      {.backend = Small().backend.get(), .target = Small().target.get()}, options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

std::vector<TestClient> MakeClients(int count) {
  std::mt19937 random(6);
  std::vector<GenerateRequest> requests(count);
  for (GenerateRequest& request : requests) {
    request.prompt = RandomPrompt(random, 5 + static_cast<int>(random() % 30), 512);
    request.sampling.max_tokens = 30;
    request.sampling.ignore_eos = true;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.temperature = 0.8f;
  }
  const EngineOptions options{.kv_dtype = DType::kF32, .max_length = 128};
  const auto results = RunBatch(Small().MakeEngine(options).get(), requests);
  std::vector<TestClient> clients;
  for (int i = 0; i < count; ++i) {
    clients.emplace_back(fmt::format("c{}", i), requests[i], results[i].TokenIds(), i);
  }
  return clients;
}

TEST(SessionThread, ManyClientsAtOnce) {
  std::vector<TestClient> clients = MakeClients(12);
  SessionThread thread(MakeSessions(8));
  std::vector<std::thread> handlers;
  for (int t = 0; t < 4; ++t) {
    handlers.emplace_back([&, t] {
      for (bool any = true; any;) {
        any = false;
        for (size_t i = t; i < clients.size(); i += 4) {
          if (clients[i].done()) continue;
          any = true;
          const VerifyCall call = clients[i].NextCall();
          clients[i].Take(call, thread.Verify(call));
          if (testing::Test::HasFailure()) return;
        }
      }
    });
  }
  for (std::thread& handler : handlers) handler.join();
  for (const TestClient& client : clients) EXPECT_TRUE(client.done());
  EXPECT_EQ(thread.snapshot().sessions, 8);
  for (const TestClient& client : clients) EXPECT_TRUE(thread.EndSession(client.id()).ok());
  thread.Shutdown(milliseconds(0));
  EXPECT_EQ(thread.engine().sessions().size(), 0);
  EXPECT_EQ(thread.engine().kv().pool().used_blocks(), 0);
  EXPECT_TRUE(thread.engine().CheckIntegrity().ok());
}

// Callers that give up, at any moment: the retry gets what the first try would have, whether or not
// that had begun.
TEST(SessionThread, AbandonedCallsAreDroppedOrKeptForTheRetry) {
  std::vector<TestClient> clients = MakeClients(8);
  SessionThread thread(MakeSessions(8));
  int late = 0;
  for (TestClient& client : clients) {
    while (!client.done()) {
      const VerifyCall call = client.NextCall();
      const auto hasty = thread.Verify(call, SessionThread::Clock::now());
      if (!hasty.ok()) {
        late += hasty.status().code() == StatusCode::kDeadlineExceeded ? 1 : 0;
        client.Take(call, thread.Verify(call));
      } else {
        client.Take(call, hasty);
      }
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
  EXPECT_GT(late, 0);
}

TEST(SessionThread, RefusesInvalidCallsAndCallsAfterShutdown) {
  SessionThread thread(MakeSessions(2));
  VerifyCall call;
  call.prompt = {1, 2, 3};
  call.temperature = -1;
  const auto bad = thread.Verify(call);
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.status().message().starts_with("BAD_TEMPERATURE"));
  EXPECT_EQ(*thread.EndSession("nobody"), false);
  thread.Shutdown(milliseconds(10));
  call.temperature = 0;
  const auto late = thread.Verify(call);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(late.status().message().starts_with("STOPPING"));
  EXPECT_EQ(thread.EndSession("nobody").status().code(), StatusCode::kUnavailable);
}

TEST(SessionThread, ShutdownAnswersEveryone) {
  std::vector<TestClient> clients = MakeClients(4);
  SessionThread thread(MakeSessions(4));
  std::vector<std::thread> handlers;
  for (TestClient& client : clients) {
    handlers.emplace_back([&] {
      for (;;) {
        const VerifyCall call = client.NextCall();
        const auto answer = thread.Verify(call);
        if (!answer.ok() && answer.status().code() == StatusCode::kUnavailable) return;
        client.Take(call, answer);
        if (client.done() || testing::Test::HasFailure()) return;
      }
    });
  }
  thread.Shutdown(milliseconds(0));
  for (std::thread& handler : handlers) handler.join();
}

}  // namespace
}  // namespace talon
