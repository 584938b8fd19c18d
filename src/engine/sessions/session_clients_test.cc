// Many clients that send, forget, repeat and confuse things: their text is that of plain decoding,
// and nothing is left behind.
#include <gtest/gtest.h>

#include "engine/sessions/session_engine.h"
#include "engine/sessions/test_sessions.h"

namespace talon {
namespace {

struct Variant {
  const char* name;
  bool prefix_cache = false;
  bool nwor = true;
  int kv_tokens = 0;  // 0: no want of blocks
  DType kv_dtype = DType::kF32;
};

class RandomClientsTest : public testing::TestWithParam<Variant> {};

// More clients than sessions, several at once, that resend, repeat, rewind and send wrong lengths.
TEST_P(RandomClientsTest, TextIsPlain) {
  const Variant& variant = GetParam();
  std::mt19937 random(5);
  int hits = 0, desyncs = 0, accepted = 0;
  const int rounds = TestRounds(12);
  for (int round = 0; round < rounds; ++round) {
    SessionOptions options = TestSessionOptions(5);
    options.engine.prefix_cache = variant.prefix_cache;
    options.engine.step.nwor = variant.nwor;
    options.engine.kv_tokens = variant.kv_tokens;
    options.engine.kv_dtype = variant.kv_dtype;
    const auto engine = MakeSessions(options);
    std::vector<GenerateRequest> requests;
    for (int i = 0; i < 9; ++i) requests.push_back(RandomRequest(random, variant.prefix_cache));
    const auto truth = PlainTokens(requests, variant.kv_dtype);
    std::vector<TestClient> clients;
    for (int i = 0; i < 9; ++i) {
      clients.emplace_back(fmt::format("c{}", i), requests[i], truth[i], round * 100 + i);
    }
    for (int turn = 0; turn < 4000; ++turn) {
      std::vector<TestClient*> chosen;
      std::vector<VerifyCall> calls;
      for (TestClient& client : clients) {
        if (client.done() || random() % 3 != 0 || chosen.size() == 4) continue;
        chosen.push_back(&client);
        calls.push_back(client.NextCall());
      }
      const auto answers = RunCalls(engine.get(), calls);
      for (size_t i = 0; i < chosen.size(); ++i) chosen[i]->Take(calls[i], answers[i]);
      if (random() % 40 == 0) engine->EndSession(fmt::format("c{}", random() % 9));
      if (testing::Test::HasFailure()) return;
    }
    for (const TestClient& client : clients) {
      EXPECT_TRUE(client.done()) << client.id();
      hits += client.hits();
      desyncs += client.desyncs();
      accepted += client.accepted();
      engine->EndSession(client.id());
    }
    EXPECT_EQ(engine->sessions().size(), 0);
    EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
    EXPECT_EQ(engine->metrics().Total(Counter::kNworFallback), 0);
    EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
  }
  EXPECT_GT(hits, 4 * rounds);
  EXPECT_GT(desyncs, 2 * rounds);
  EXPECT_GT(accepted, 16 * rounds);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, RandomClientsTest,
    testing::Values(
        Variant{.name = "Default"}, Variant{.name = "PrefixCache", .prefix_cache = true},
        Variant{.name = "WithoutNwor", .nwor = false},
        Variant{.name = "FewBlocks", .kv_tokens = 256},
        Variant{.name = "FewBlocksPrefixCache", .prefix_cache = true, .kv_tokens = 256},
        Variant{
            .name = "KvFp8", .prefix_cache = true, .kv_tokens = 256, .kv_dtype = DType::kF8E4M3},
        Variant{.name = "KvInt8", .kv_dtype = DType::kI8}),
    [](const auto& info) { return info.param.name; });

TEST(SessionEngine, ManySessionsOnFewSlots) {
  std::mt19937 random(8);
  const auto engine = MakeSessions(TestSessionOptions(16));
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 64; ++i) requests.push_back(RandomRequest(random, false));
  const auto truth = PlainTokens(requests);
  std::vector<TestClient> clients;
  for (int i = 0; i < 64; ++i) clients.emplace_back(fmt::format("{}", i), requests[i], truth[i], i);
  bool any = true;
  while (any) {
    any = false;
    for (TestClient& client : clients) {
      for (int call = 0; call < 3 && !client.done(); ++call) {
        any = true;
        const VerifyCall asked = client.NextCall();
        client.Take(asked, RunCall(engine.get(), asked));
        if (testing::Test::HasFailure()) return;
      }
    }
    EXPECT_EQ(engine->sessions().size(), 16);
  }
  EXPECT_GT(engine->metrics().Get(Counter::kRemoteSessionEvictions, "lru"), 48);
}

}  // namespace
}  // namespace talon
