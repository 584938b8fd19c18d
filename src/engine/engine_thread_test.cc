// Many callers at once: each gets the answer of a request that runs alone, whatever comes, goes
// or is preempted meanwhile.
#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "engine/test_engine.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon(300'000);  // until something counts as hung

// Few different tokens, so that prompts share beginnings and drafts are accepted.
GenerateRequest RandomRequest(std::mt19937& random) {
  GenerateRequest request;
  const int length = 1 + static_cast<int>(random() % 40);
  const int kind = static_cast<int>(random() % 4);
  for (int i = 0; i < length; ++i) request.prompt.push_back((i * (kind + 1) / 3) % 7);
  if (random() % 2 == 0) request.prompt.back() = static_cast<int32_t>(random() % 300);
  request.sampling.max_tokens = 1 + static_cast<int>(random() % 60);
  request.sampling.ignore_eos = true;
  if (random() % 2 == 0) {
    request.sampling.temperature = 0.9f;
    request.sampling.seed = random();
  }
  request.speculate = random() % 8 != 0;
  request.max_draft_nodes = random() % 4 == 0 ? 3 : 0;
  return request;
}

std::unique_ptr<Engine> SmallEngine(int kv_tokens, Metrics* drafter_metrics) {
  EngineOptions options{.kv_dtype = DType::kF32,
                        .kv_tokens = kv_tokens,
                        .max_length = 128,
                        .max_sequences = 6,
                        .prefill_chunk = 32,
                        .kv_audit = true,
                        .prefix_cache = true};
  options.step.budget = {.max_nodes = 8, .max_depth = 5, .top_k = 2};
  auto drafter = MakeDrafter(DrafterKind::kSuffix, {.budget = options.step.budget},
                             {.metrics = drafter_metrics,
                              .vocab_size = Small().target->config().vocab_size,
                              .cache = {.max_length = 128, .max_sequences = 6}});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return Small().MakeEngine(options, std::move(drafter).value());
}

GenerateResult WaitFor(RequestStream* stream, std::vector<int32_t>* streamed = nullptr) {
  while (!stream->done()) {
    const auto update = stream->Next(kSoon);
    if (!update || streamed == nullptr) continue;
    for (const EmittedToken& token : update->tokens) streamed->push_back(token.token);
  }
  return stream->result();
}

TEST(EngineThread, StreamsWhatTheResultHas) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  std::mt19937 random(3);
  auto stream = thread.Submit(RandomRequest(random));
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  std::vector<int32_t> streamed;
  const GenerateResult result = WaitFor(stream->get(), &streamed);
  EXPECT_EQ(streamed, result.TokenIds());
  EXPECT_EQ(result.finish, FinishReason::kLength);
}

TEST(EngineThread, SaysWhatIsWrongAtOnce) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  EXPECT_FALSE(thread.Submit({}).ok());
  GenerateRequest request;
  request.prompt = {1 << 30};
  EXPECT_FALSE(thread.Submit(request).ok());
}

TEST(EngineThread, WatchedUpdatesCarryTreesAndStats) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  GenerateRequest request;
  for (int i = 0; i < 40; ++i) request.prompt.push_back(i % 3);
  request.sampling = {.max_tokens = 40, .ignore_eos = true};
  request.watched = true;
  auto stream = thread.Submit(std::move(request));
  ASSERT_TRUE(stream.ok());
  int64_t accepted = 0;
  size_t trees = 0;
  RequestStats last;
  while (!(*stream)->done()) {
    const auto update = (*stream)->Next(kSoon);
    if (!update) continue;
    ASSERT_TRUE(update->stats && update->tree);
    EXPECT_EQ(update->tree->tokens.size(), update->tree->parents.size());
    EXPECT_EQ(update->tree->path.front(), 0);
    accepted += static_cast<int64_t>(update->tree->path.size()) - 1;
    trees += update->tree->tokens.size() > 1 ? 1 : 0;
    last = *update->stats;
  }
  EXPECT_EQ(last.emitted, 40);
  EXPECT_EQ(last.accepted, accepted);
  EXPECT_GT(trees, 0u);
}

TEST(EngineThread, CancelFreesEverything) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.sampling = {.max_tokens = 120, .ignore_eos = true};
  int cancelled = 0;
  // Again where the engine was done before the cancel came.
  for (int round = 0; round < 100 && cancelled == 0; ++round) {
    std::vector<std::shared_ptr<RequestStream>> streams;
    for (int i = 0; i < 12; ++i) streams.push_back(thread.Submit(request).value());
    for (const auto& stream : streams) thread.Cancel(stream);
    for (const auto& stream : streams) {
      const GenerateResult result = WaitFor(stream.get());
      cancelled += result.finish == FinishReason::kCancelled ? 1 : 0;
    }
  }
  EXPECT_GT(cancelled, 0);
  thread.Shutdown(kSoon);
  EXPECT_EQ(thread.engine().kv().pool().used_blocks(), 0);
  EXPECT_TRUE(thread.engine().CheckIntegrity().ok());
}

TEST(EngineThread, RefusesBeyondTheQueueAndAfterShutdown) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics), /*max_waiting=*/2);
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.sampling = {.max_tokens = 100, .ignore_eos = true};
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    const auto stream = thread.Submit(request);
    if (stream.ok()) continue;
    EXPECT_EQ(stream.status().code(), StatusCode::kResourceExhausted);
    ++refused;
  }
  EXPECT_GT(refused, 0);
  thread.Shutdown(milliseconds(0));
  EXPECT_EQ(thread.Submit(request).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(thread.engine().kv().pool().used_blocks(), 0);
}

TEST(EngineThread, ShutdownLetsRequestsFinish) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  std::mt19937 random(9);
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (int i = 0; i < 20; ++i) streams.push_back(thread.Submit(RandomRequest(random)).value());
  thread.Shutdown(kSoon);
  for (const auto& stream : streams) {
    EXPECT_EQ(WaitFor(stream.get()).finish, FinishReason::kLength);
  }
}

TEST(EngineThread, LooksInsideBetweenSteps) {
  Metrics metrics;
  EngineThread thread(SmallEngine(512, &metrics));
  GenerateRequest request{.prompt = {1, 2, 3}};
  request.sampling.max_tokens = 100;
  request.sampling.ignore_eos = true;
  size_t seen = 0;
  Status integrity = OkStatus();
  const auto look = [&](const Engine& engine) {
    seen = engine.Sequences().size();
    integrity = engine.CheckIntegrity();
  };
  for (int i = 0; i < 1000 && seen == 0; ++i) {  // until a look comes before the request's end
    const auto stream = thread.Submit(request).value();
    ASSERT_TRUE(thread.Inspect(look).ok());
    ASSERT_TRUE(integrity.ok()) << integrity.message();
    WaitFor(stream.get());
  }
  EXPECT_EQ(seen, 1U);
  ASSERT_TRUE(thread.Inspect(look).ok());
  EXPECT_EQ(seen, 0U);
  thread.Shutdown(kSoon);
  EXPECT_EQ(thread.Inspect(look).code(), StatusCode::kUnavailable);
}

// Four threads, a pool that holds hardly two of the longer sequences, random cancels: every
// finished answer is that of the request alone, and nothing is left behind.
TEST(EngineThread, RandomTrafficEqualsRequestsAlone) {
  const int count = TestRounds(300);
  std::mt19937 random(17);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(RandomRequest(random));
  Metrics metrics;
  EngineThread thread(SmallEngine(160, &metrics));
  std::vector<GenerateResult> results(count);
  std::latch held(1), crowded(4);  // the engine begins when each client has five requests
  const auto client = [&](int first) {
    std::mt19937 own(first);
    std::vector<std::pair<int, std::shared_ptr<RequestStream>>> open;
    for (int i = first; i < count || !open.empty(); i += 4) {
      if (i < count) {
        open.emplace_back(i, thread.Submit(requests[i]).value());
        if (own() % 10 == 0) thread.Cancel(open[own() % open.size()].second);
        if (i == first + 4 * 4) crowded.count_down();
      }
      if (open.size() < 5 && i < count) continue;
      results[open.front().first] = WaitFor(open.front().second.get());
      open.erase(open.begin());
    }
  };
  std::thread holder([&] {
    const auto hold = [&](const Engine&) {
      held.count_down();
      crowded.wait();
    };
    EXPECT_TRUE(thread.Inspect(hold).ok());
  });
  held.wait();
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back(client, i);
  holder.join();
  for (std::thread& one : clients) one.join();
  thread.Shutdown(kSoon);
  EXPECT_EQ(thread.engine().kv().pool().used_blocks(), 0);
  const Status status = thread.engine().CheckIntegrity();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(thread.metrics().Total(Counter::kKvEvictions), 0);
  EXPECT_GT(thread.metrics().Total(Counter::kRequestPreemptions), 0);
  EXPECT_GT(thread.metrics().Total(Counter::kSpecAcceptedTokens), 0);

  const auto alone = Small().MakeEngine(
      {.kv_dtype = DType::kF32, .max_length = 128, .max_sequences = 1, .prefill_chunk = 32});
  int finished = 0;
  for (int i = 0; i < count; ++i) {
    if (results[i].finish == FinishReason::kCancelled) continue;
    ++finished;
    const GenerateResult expected = alone->Generate(requests[i]).value();
    ASSERT_EQ(results[i].TokenIds(), expected.TokenIds()) << "request " << i;
  }
  EXPECT_GT(finished, count * 8 / 10);
}

}  // namespace
}  // namespace talon
