#include "remote/draft_sessions.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "base/check.h"
#include "base/contain.h"
#include "engine/draft_forest.h"
#include "engine/test_engine.h"
#include "spec/drafters/ngram_drafter.h"
#include "spec/drafters/standalone_drafter.h"
#include "spec/drafters/suffix_drafter.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

// Proposes a fixed tree and records its calls.
class ToldDrafter : public Drafter {
 public:
  enum class Place { kBegin, kPropose, kObserve, kEnd };
  struct Log {
    std::map<SequenceId, Tokens> sequences;  // sequences that have begun and not ended
    int begun = 0;
    int observed = 0;  // tokens
    DraftRequest last;
    TokenTree tree{0};
    Status begin;
    std::function<void(Place)> breaks;  // called first in each of these members
  };
  explicit ToldDrafter(Log* log) : log_(log) {}
  std::string_view name() const override { return "TOLD"; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override {
    Reach(Place::kBegin);
    TALON_RETURN_IF_ERROR(log_->begin);
    ++log_->begun;
    log_->sequences[sequence].assign(prompt.begin(), prompt.end());
    return OkStatus();
  }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    Reach(Place::kPropose);
    const Tokens& known = log_->sequences.at(requests[0].sequence);
    EXPECT_EQ(known, Tokens(requests[0].tokens.begin(), requests[0].tokens.end()));
    log_->last = requests[0];
    log_->tree.tokens[0] = trees[0].tokens[0];
    trees[0] = log_->tree;
  }
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    Reach(Place::kObserve);
    Tokens& tokens = log_->sequences.at(sequence);
    tokens.insert(tokens.end(), emitted.begin(), emitted.end());
    log_->observed += static_cast<int>(emitted.size());
  }
  void Rewind(SequenceId sequence, int length) override {
    log_->sequences.at(sequence).resize(length);
  }
  void End(SequenceId sequence) override {
    Reach(Place::kEnd);
    log_->sequences.erase(sequence);
  }

 private:
  void Reach(Place place) {
    if (log_->breaks) log_->breaks(place);
  }
  Log* log_;
};

class DraftSessionsTest : public testing::Test {
 protected:
  DraftSessions Make(DraftSessionsOptions options = {}) {
    return DraftSessions(std::make_unique<ToldDrafter>(&log_), std::move(options));
  }
  ToldDrafter::Log log_;
};

TEST_F(DraftSessionsTest, ContextsGrowAndBranchInOneSession) {
  DraftSessions sessions = Make();
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1, 2, 3}})->rows, 3);
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1, 2, 3, 4, 5}})->rows, 2);
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1, 2, 3, 7}})->rows, 1);
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1, 2, 3, 7}})->rows, 0);
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1, 2}})->rows, 0);
  EXPECT_EQ(log_.begun, 1);
  EXPECT_EQ(log_.observed, 3);
  EXPECT_TRUE(sessions.Draft({.session_id = "s", .context = {9}}).ok());
  EXPECT_EQ(log_.begun, 2) << "nothing in common: begun anew";
  EXPECT_EQ(sessions.num_sessions(), 1);
}

TEST_F(DraftSessionsTest, ResetAndStatelessCalls) {
  DraftSessions sessions = Make();
  EXPECT_TRUE(sessions.Draft({.session_id = "s", .context = {1, 2}}).ok());
  EXPECT_TRUE(sessions.Draft({.session_id = "s", .context = {1, 2}, .reset_cache = true}).ok());
  EXPECT_EQ(log_.begun, 2);
  EXPECT_TRUE(sessions.Draft({.context = {1, 2}}).ok());
  EXPECT_EQ(sessions.num_sessions(), 1);
  EXPECT_EQ(log_.sequences.size(), 1u);
}

TEST_F(DraftSessionsTest, TheLeastRecentlyUsedSessionIsEvicted) {
  DraftSessions sessions = Make({.max_sessions = 2});
  for (const char* id : {"a", "b", "a", "c", "a"}) {
    EXPECT_TRUE(sessions.Draft({.session_id = id, .context = {1, 2}}).ok());
  }
  EXPECT_EQ(sessions.num_sessions(), 2);
  EXPECT_EQ(log_.begun, 3) << "b left, a stayed";
  EXPECT_EQ(log_.sequences.size(), 2u);
}

TEST_F(DraftSessionsTest, TheTotalOfTokensIsLimited) {
  DraftSessions sessions = Make({.max_tokens = 10});
  EXPECT_TRUE(sessions.Draft({.session_id = "a", .context = Tokens(4, 1)}).ok());
  EXPECT_TRUE(sessions.Draft({.session_id = "b", .context = Tokens(4, 1)}).ok());
  EXPECT_EQ(sessions.num_sessions(), 2);
  EXPECT_TRUE(sessions.Draft({.session_id = "b", .context = Tokens(8, 1)}).ok());
  EXPECT_EQ(sessions.num_sessions(), 1);
}

TEST_F(DraftSessionsTest, DefaultsAndLimits) {
  DraftSessions sessions = Make({.max_draft_tokens = 7, .num_beams = 2, .temperature = 0.5f});
  ASSERT_TRUE(sessions.Draft({.context = {1}}).ok());
  EXPECT_EQ(log_.last.budget.max_depth, 7);
  EXPECT_EQ(log_.last.budget.top_k, 2);
  EXPECT_EQ(log_.last.temperature, 0.5f);
  const uint64_t drawn = log_.last.seed;
  ASSERT_TRUE(sessions.Draft({.context = {1}}).ok());
  EXPECT_NE(log_.last.seed, drawn) << "drafts of no seed must differ from call to call";
  ASSERT_TRUE(sessions.Draft({.context = {1}, .seed = 0}).ok());
  EXPECT_EQ(log_.last.seed, 0u) << "0 is a seed like any other";

  ASSERT_TRUE(sessions.Draft({.context = {1}, .num_beams = 3, .temperature = 0.0f}).ok());
  EXPECT_EQ(log_.last.budget.top_k, 1) << "greedy drafts do not branch";

  ASSERT_TRUE(
      sessions.Draft({.context = {1}, .max_length = 3, .num_beams = 3, .max_nodes = 9}).ok());
  EXPECT_EQ(log_.last.budget.max_nodes, 10);
  EXPECT_EQ(log_.last.budget.top_k, 3);
  EXPECT_EQ(log_.last.temperature, 0) << "the likeliest tree is not drawn";

  ASSERT_TRUE(sessions.Draft({.context = {1}, .max_nodes = 1 << 30}).ok());
  EXPECT_EQ(log_.last.budget.max_nodes, DraftSessionsOptions::kMaxNodes + 1);
}

TEST_F(DraftSessionsTest, BadCallsSayWhatIsWrong) {
  DraftSessions sessions = Make();
  EXPECT_FALSE(sessions.Draft({.session_id = "s"}).ok());
  const auto message = [&](const DraftCall& call) {
    return sessions.Draft(call).status().message();
  };
  EXPECT_EQ(message({.context = {1}, .max_length = 65}),
            "TREE_TOO_LARGE: max_draft_len 65, must be 1 to 64");
  EXPECT_EQ(message({.context = {1}, .max_length = -1}),
            "TREE_TOO_LARGE: max_draft_len -1, must be 1 to 64");
  EXPECT_EQ(message({.context = {1}, .num_beams = 17}),
            "TREE_TOO_LARGE: num_beams 17, must be 1 to 16");
  EXPECT_EQ(message({.context = {1}, .max_nodes = -3}), "TREE_INVALID: max_nodes -3");
  EXPECT_EQ(message({.context = {1}, .temperature = -1.0f}),
            "BAD_TEMPERATURE: -1, must be 0 or more");
  EXPECT_EQ(sessions.num_sessions(), 0);
}

TEST_F(DraftSessionsTest, ARefusedSessionLeavesNoState) {
  DraftSessions sessions = Make();
  log_.begin = ResourceExhausted("no room");
  EXPECT_EQ(sessions.Draft({.session_id = "s", .context = {1}}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(sessions.num_sessions(), 0);
  log_.begin = OkStatus();
  EXPECT_TRUE(sessions.Draft({.session_id = "s", .context = {1}}).ok());
}

TEST_F(DraftSessionsTest, CancelledCallsAreNotDrafted) {
  DraftSessions sessions = Make();
  const auto answer = sessions.Draft({.session_id = "s", .context = {1}}, [] { return true; });
  EXPECT_EQ(answer.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(log_.begun, 0);
}

TEST_F(DraftSessionsTest, EosNodesAreLeaves) {
  DraftSessions sessions = Make({.eos_ids = {7}});
  const int end = log_.tree.Add(0, 7, 0.5f);
  log_.tree.Add(0, 8, 0.4f);
  log_.tree.Add(end, 9, 0.9f);
  EXPECT_EQ(sessions.Draft({.context = {1}, .num_beams = 2, .max_nodes = 9})->drafts.tokens,
            (Tokens{7, 8}));
}

// A drafter that breaks in one of its members must not leave its callers waiting for ever.
TEST_F(DraftSessionsTest, ABrokenBatchAnswersItsCallersAndTheNextCallWorks) {
  for (const ToldDrafter::Place place :
       {ToldDrafter::Place::kBegin, ToldDrafter::Place::kPropose, ToldDrafter::Place::kObserve}) {
    log_ = {};
    Metrics metrics;
    DraftSessions sessions = Make({.metrics = &metrics});
    ASSERT_TRUE(sessions.Draft({.session_id = "kept", .context = {1}}).ok());
    if (place == ToldDrafter::Place::kObserve) {
      for (const char* id : {"0", "1", "2"}) {
        ASSERT_TRUE(sessions.Draft({.session_id = id, .context = {1, 2}}).ok());
      }
    }
    log_.breaks = [&](ToldDrafter::Place at) { TALON_CHECK(at != place, "by the test"); };
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&, i] {
        const auto answer = sessions.Draft({.session_id = std::to_string(i), .context = {1, 2, 3}});
        EXPECT_EQ(answer.status().code(), StatusCode::kInternal);
        EXPECT_NE(answer.status().message().find("INVARIANT"), std::string::npos);
        EXPECT_NE(answer.status().message().find("by the test"), std::string::npos);
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_GE(metrics.Total(Counter::kInternalErrors), 1);
    EXPECT_EQ(sessions.num_sessions(), 1) << "those of the batch have ended";
    EXPECT_EQ(log_.sequences.size(), 1u);
    log_.breaks = {};
    EXPECT_TRUE(sessions.Draft({.session_id = "0", .context = {1, 2, 3}}).ok());
    EXPECT_EQ(sessions.Draft({.session_id = "kept", .context = {1}})->rows, 0);
    EXPECT_TRUE(sessions.health().ok());
  }
}

TEST_F(DraftSessionsTest, ADeviceFaultStopsTheWorkerAndIsSaidOnce) {
  int stopped = 0;
  DraftSessions sessions = Make({.on_stopped = [&] { ++stopped; }});
  log_.breaks = [](ToldDrafter::Place at) {
    if (at == ToldDrafter::Place::kPropose) throw DeviceFault("the device is lost");
  };
  EXPECT_EQ(sessions.Draft({.context = {1}}).status().code(), StatusCode::kInternal);
  log_.breaks = {};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sessions.Draft({.context = {1}}).status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(stopped, 1);
  EXPECT_FALSE(sessions.health().ok());
}

TEST_F(DraftSessionsTest, ASessionThatCannotBeEndedStopsTheWorker) {
  DraftSessions sessions = Make();
  log_.breaks = [](ToldDrafter::Place at) { TALON_CHECK(at != ToldDrafter::Place::kEnd, "test"); };
  EXPECT_EQ(sessions.Draft({.context = {1}}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(sessions.Draft({.context = {1}}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(sessions.num_sessions(), 0);
}

// Drafters that do not sample give SpecSplit's clients the number of branches they request.
TEST(DraftSessions, LookupDraftersKeepTheBranchLimit) {
  DraftSessions sessions(std::make_unique<NgramDrafter>(), {});
  const Tokens context = {1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2};
  const auto wide = sessions.Draft({.session_id = "s", .context = context, .num_beams = 3});
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(std::ranges::count(wide->drafts.parents, -1), 3);
  const auto greedy =
      sessions.Draft({.session_id = "s", .context = context, .num_beams = 3, .temperature = 0.0f});
  for (int i = 0; i < greedy->drafts.size(); ++i) EXPECT_EQ(greedy->drafts.parents[i], i - 1);
  EXPECT_GE(greedy->drafts.size(), 1);
}

TEST(DraftSessions, HeadsAreRefusedWithAReason) {
  for (const DrafterKind kind : {DrafterKind::kEagle, DrafterKind::kEagle3, DrafterKind::kDflash,
                                 DrafterKind::kJetspec, DrafterKind::kDspark}) {
    const std::string message(CheckRemoteDrafter(kind).message());
    EXPECT_TRUE(message.starts_with(std::string("drafter: ") + DrafterKindName(kind) +
                                    " cannot run remotely: each step needs the target's hidden "
                                    "states"))
        << message;
  }
  EXPECT_FALSE(CheckRemoteDrafter(DrafterList()).ok());
  EXPECT_TRUE(CheckRemoteDrafter(DrafterKind::kSuffix).ok());
}

// The drafts of a context do not depend on what the session saw before.
TEST(DraftSessions, DraftsDoNotDependOnTheHistoryOfTheSession) {
  TestModel tiny("models/tiny", WeightFormat::kInt8);
  Metrics metrics;
  const auto make = [&] {
    auto drafter = StandaloneDrafter::Load(
        {.model_path = std::string(TALON_SOURCE_DIR) + "/models/tiny-draft",
         .budget = {.max_nodes = DraftSessionsOptions::kMaxNodes + 1,
                    .max_depth = 8,
                    .top_k = DraftSessionsOptions::kMaxBeams},
         .sample = true,
         .drawn_trees = true,
         .vocab_size = tiny.target->config().vocab_size,
         .cache = {.max_length = 512, .max_sequences = 4 + DraftSessionsOptions::kMaxBatch}},
        tiny.backend.get(), &metrics);
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::make_unique<DraftSessions>(std::move(*drafter), DraftSessionsOptions{});
  };
  const auto kept = make();
  const auto fresh = make();
  std::mt19937 random(5);
  Tokens context = RandomPrompt(random, 20, tiny.target->config().vocab_size);
  for (int round = 0; round < 12; ++round) {
    DraftCall call{.session_id = "s",
                   .context = context,
                   .max_length = 1 + static_cast<int>(random() % 6),
                   .num_beams = 1 + static_cast<int>(random() % 4),
                   .max_nodes = round % 3 == 0 ? 12 : 0,
                   .temperature = round % 3 == 1 ? 0.0f : 0.9f,
                   .seed = 77};
    const auto one = kept->Draft(call);
    call.session_id.clear();
    const auto other = fresh->Draft(call);
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_FALSE(one->drafts.empty());
    EXPECT_EQ(one->drafts.tokens, other->drafts.tokens) << "round " << round;
    EXPECT_EQ(one->drafts.parents, other->drafts.parents);
    EXPECT_EQ(one->drafts.draws.empty(), call.max_nodes > 0 || call.temperature == 0.0f);
    const TokenTree tree = TreeOfForest(context.back(), one->drafts);
    const TreeLimits limits{.max_nodes = 200, .vocab_size = 1 << 20, .max_length = 512};
    EXPECT_TRUE(ValidateTree(tree, limits).ok()) << ValidateTree(tree, limits).message();
    // Sometimes a rewind, sometimes a continuation along the drafts.
    if (random() % 2 == 0) context.resize(context.size() - random() % 4);
    context.push_back(static_cast<int32_t>(random() % 200));
    context.push_back(one->drafts.tokens[0]);
  }
}

// Calls of one batch get what they would get alone.
TEST(DraftSessions, ConcurrentCallsGetTheDraftsOfSingleCalls) {
  TestModel tiny("models/tiny", WeightFormat::kInt8);
  Metrics metrics;
  const auto make = [&] {
    auto drafter = StandaloneDrafter::Load(
        {.model_path = std::string(TALON_SOURCE_DIR) + "/models/tiny-draft",
         .budget = {.max_nodes = DraftSessionsOptions::kMaxNodes + 1, .max_depth = 8, .top_k = 4},
         .sample = true,
         .drawn_trees = true,
         .vocab_size = tiny.target->config().vocab_size,
         .cache = {.max_length = 512, .max_sequences = 3 + DraftSessionsOptions::kMaxBatch}},
        tiny.backend.get(), &metrics);
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::make_unique<DraftSessions>(std::move(*drafter),
                                           DraftSessionsOptions{.max_sessions = 3});
  };
  constexpr int kThreads = 6;  // more than there are sessions
  constexpr int kRounds = 5;
  const auto call = [&](int thread, int round) {
    std::mt19937 random(100 * thread + round);
    return DraftCall{.session_id = thread == 0 ? "" : std::to_string(thread),
                     .context = RandomPrompt(random, 8 + round, 200),
                     .max_length = 1 + thread,
                     .num_beams = 1 + (thread + round) % 4,
                     .max_nodes = thread % 3 == 0 ? 0 : 10,
                     .temperature = 0.8f,
                     .seed = 5};
  };
  const auto together = make();
  std::vector<std::vector<Tokens>> drafted(kThreads, std::vector<Tokens>(kRounds));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const auto answer = together->Draft(call(thread, round));
        ASSERT_TRUE(answer.ok()) << answer.status().message();
        drafted[thread][round] = answer->drafts.tokens;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(together->num_sessions(), 3 + DraftSessionsOptions::kMaxBatch);
  const auto alone = make();
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_EQ(drafted[thread][round], alone->Draft(call(thread, round))->drafts.tokens)
          << thread << " " << round;
      EXPECT_FALSE(drafted[thread][round].empty());
    }
  }
}

}  // namespace
}  // namespace talon
