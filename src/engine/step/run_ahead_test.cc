// Steps that run ahead: trees grow on the device and are verified before the host knows them. On
// the CPU a twin of the device's search stands in for it.
#include <gtest/gtest.h>

#include "compute/host/host_token_ops.h"
#include "engine/test_engine.h"
#include "grammar/gbnf.h"
#include "spec/drafters/heads/eagle_drafter.h"
#include "spec/drafters/merged_drafter.h"
#include "spec/drafters/suffix_drafter.h"
#include "spec/policy/adaptive.h"

namespace talon {
namespace {

constexpr DraftBudget kAheadBudget{.max_nodes = 12, .max_depth = 5, .top_k = 4};

// What the engine did with the drafter's trees.
class CallCounter : public Drafter {
 public:
  struct Calls {
    int proposed = 0;
    int finished = 0;
    std::vector<TokenTree> trees;
  };
  CallCounter(std::unique_ptr<Drafter> inner, Calls* calls)
      : inner_(std::move(inner)), calls_(calls) {}
  std::string_view name() const override { return inner_->name(); }
  std::vector<int> capture_layers() const override { return inner_->capture_layers(); }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override {
    return inner_->Begin(sequence, prompt);
  }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    inner_->Propose(requests, trees);
    Note(trees, &calls_->proposed);
  }
  bool GrowsAhead() const override { return inner_->GrowsAhead(); }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override {
    return inner_->BeginTrees(requests, most_nodes, trees);
  }
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) override {
    inner_->PlaceTrees(outlines, pass);
  }
  void FinishTrees(std::span<TokenTree> trees) override {
    inner_->FinishTrees(trees);
    Note(trees, &calls_->finished);
  }
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override {
    inner_->Extend(batch, features);
  }
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    inner_->Observe(sequence, emitted);
  }
  void Rewind(SequenceId sequence, int length) override { inner_->Rewind(sequence, length); }
  void End(SequenceId sequence) override { inner_->End(sequence); }

 private:
  void Note(std::span<TokenTree> trees, int* count) {
    *count += 1;
    calls_->trees.insert(calls_->trees.end(), trees.begin(), trees.end());
  }
  std::unique_ptr<Drafter> inner_;
  Calls* calls_;
};

struct AheadOutcome {
  std::vector<std::vector<int32_t>> tokens;
  CallCounter::Calls calls;
  int64_t accepted = 0;
  int64_t refreshes = 0;
};

struct RunOptions {
  bool ahead = true;
  bool specpv = false;
  SpecPvMode mode = SpecPvMode::kExact;
  float min_prob = 0;
  float temperature = 0;
  bool offload = false;
  bool plain = false;  // without drafter
  bool adaptive = false;
  bool merged = false;   // beside a lookup
  bool grammar = false;  // the answers have a grammar
};

// Letters for the model's tokens, of which the grammar forbids many.
std::shared_ptr<Matcher> SomeLetters() {
  static const TokenTrie trie = [] {
    std::vector<std::string> bytes;
    for (int i = 0; i < 8192; ++i) {
      bytes.push_back(std::string(1 + i % 3, static_cast<char>('a' + i % 26)));
    }
    return TokenTrie(std::move(bytes));
  }();
  return std::make_shared<Matcher>(std::move(*RegexGrammar("([a-t]+[u-z])*")), &trie);
}

// A head that grows trees ahead, and a lookup whose drafts the host knows.
std::unique_ptr<Drafter> BesideLookup(std::unique_ptr<Drafter> head) {
  std::vector<MergedDrafter::Source> sources(2);
  sources[0] = {std::move(head), kAheadBudget};
  sources[1] = {std::make_unique<SuffixDrafter>(), kAheadBudget};
  return std::make_unique<MergedDrafter>(std::move(sources));
}

EngineOptions OptionsOf(const RunOptions& run) {
  EngineOptions options{.max_length = 1024, .max_sequences = 3, .kv_offload = run.offload};
  options.step.budget = kAheadBudget;
  if (run.specpv) {
    options.step.specpv = {.enabled = true,
                           .sink_blocks = 1,
                           .retrieval_blocks = 4,
                           .window_blocks = 2,
                           .buffer_tokens = 48,
                           .partial_threshold = 128,
                           .full_refresh_interval = 4,
                           .mode = run.mode};
  }
  return options;
}

AheadOutcome GenerateAhead(const RunOptions& run) {
  AheadOutcome outcome;
  Metrics metrics;
  auto* host = dynamic_cast<HostTokenOps*>(Tiny().backend->token_ops());
  if (host != nullptr) host->GrowTreesAhead(run.ahead);
  std::unique_ptr<Drafter> drafter;
  if (!run.plain) {
    auto head = EagleDrafter::Load({.model_path = TALON_SOURCE_DIR "/models/tiny-eagle3",
                                    .budget = kAheadBudget,
                                    .min_prob = run.min_prob,
                                    .cache = {.max_length = 1024, .max_sequences = 3}},
                                   *Tiny().target, Tiny().backend.get(), &metrics);
    EXPECT_TRUE(head.ok()) << head.status().message();
    drafter = std::make_unique<CallCounter>(std::move(*head), &outcome.calls);
    if (run.merged) drafter = BesideLookup(std::move(drafter));
  }
  Engine::Parts parts{.backend = Tiny().backend.get(),
                      .target = Tiny().target.get(),
                      .drafter = std::move(drafter)};
  if (run.adaptive) {  // rows cost as much as the first
    parts.policy = std::make_unique<AdaptivePolicy>(VerifyCurve({{1, 1e-3, 0}, {64, 64e-3, 0}}));
  }
  const auto engine = std::move(Engine::Create(std::move(parts), OptionsOf(run))).value();
  std::mt19937 random(7);
  std::vector<GenerateRequest> requests;
  for (const int length : {40, 260, 7}) {
    GenerateRequest request;
    request.prompt = RandomPrompt(random, length, 8192);
    request.sampling.max_tokens = 40 + length % 9;
    request.sampling.temperature = run.temperature;
    request.sampling.seed = 5;
    if (run.grammar) request.sampling.grammar = SomeLetters();
    requests.push_back(std::move(request));
  }
  for (const GenerateResult& result : RunBatch(engine.get(), std::move(requests))) {
    outcome.tokens.push_back(result.TokenIds());
    outcome.accepted += result.stats.accepted;
  }
  outcome.refreshes = engine->metrics().Total(Counter::kSpecPvRefresh);
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  if (host != nullptr) host->GrowTreesAhead(false);
  return outcome;
}

// A device always grows its trees ahead, so there is nothing to compare with.
bool IsHost() { return dynamic_cast<HostTokenOps*>(Tiny().backend->token_ops()) != nullptr; }

void ExpectSameOutcome(const AheadOutcome& ahead, const AheadOutcome& behind) {
  EXPECT_EQ(ahead.tokens, behind.tokens);
  EXPECT_EQ(ahead.accepted, behind.accepted);
  ASSERT_EQ(ahead.calls.trees.size(), behind.calls.trees.size());
  for (size_t i = 0; i < ahead.calls.trees.size(); ++i) {
    EXPECT_EQ(ahead.calls.trees[i].tokens, behind.calls.trees[i].tokens) << "tree " << i;
    EXPECT_EQ(ahead.calls.trees[i].parents, behind.calls.trees[i].parents) << "tree " << i;
  }
}

TEST(RunAhead, TextAndTreesAreThoseOfTheHost) {
  const AheadOutcome ahead = GenerateAhead({.ahead = true});
  EXPECT_GT(ahead.calls.finished, 0);
  EXPECT_EQ(ahead.calls.proposed, 0);
  EXPECT_GT(ahead.accepted, 0);
  EXPECT_EQ(ahead.tokens, GenerateAhead({.plain = true}).tokens);
  if (!IsHost()) return;
  const AheadOutcome behind = GenerateAhead({.ahead = false});
  EXPECT_EQ(behind.calls.finished, 0);
  ExpectSameOutcome(ahead, behind);
}

// Rows that no draft fills are computed and ignored.
TEST(RunAhead, TreesMayHaveFewerNodesThanRows) {
  const AheadOutcome ahead = GenerateAhead({.ahead = true, .min_prob = 0.05f});
  EXPECT_GT(ahead.calls.finished, 0);
  const auto smaller = std::ranges::count_if(ahead.calls.trees, [](const TokenTree& tree) {
    return tree.size() > 1 && tree.size() < kAheadBudget.max_nodes;
  });
  EXPECT_GT(smaller, 0);
  if (IsHost()) ExpectSameOutcome(ahead, GenerateAhead({.ahead = false, .min_prob = 0.05f}));
}

// The policy cannot trim trees that the host does not know: it chooses their size, and nothing
// waits for them.
TEST(RunAhead, AnAdaptivePolicyChoosesSizes) {
  const AheadOutcome ahead = GenerateAhead({.ahead = true, .adaptive = true});
  EXPECT_GT(ahead.calls.finished, 0);
  EXPECT_EQ(ahead.calls.proposed, 0);
  const auto smaller = std::ranges::count_if(ahead.calls.trees, [](const TokenTree& tree) {
    return tree.size() > 1 && tree.size() <= kAheadBudget.max_nodes / 2;
  });
  EXPECT_GT(smaller, 0);
  EXPECT_EQ(ahead.tokens, GenerateAhead({.plain = true}).tokens);
}

// Below a tail, and behind a trunk.
TEST(RunAhead, PartialViewsAndTheirFullPasses) {
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    const AheadOutcome ahead = GenerateAhead({.ahead = true, .specpv = true, .mode = mode});
    EXPECT_GT(ahead.calls.finished, 0);
    EXPECT_GT(ahead.refreshes, 2);
    if (IsHost())
      ExpectSameOutcome(ahead, GenerateAhead({.ahead = false, .specpv = true, .mode = mode}));
    if (mode == SpecPvMode::kExact) {
      EXPECT_EQ(ahead.tokens, GenerateAhead({}).tokens);
    }
  }
}

// Partial steps read copies of the chosen blocks.
TEST(RunAhead, OffloadedBlocksChangeNothing) {
  for (const SpecPvMode mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    const AheadOutcome offloaded = GenerateAhead({.specpv = true, .mode = mode, .offload = true});
    EXPECT_GT(offloaded.refreshes, 2);
    ExpectSameOutcome(offloaded, GenerateAhead({.specpv = true, .mode = mode}));
  }
}

// Some steps have the head's trees, which nothing waits for, others the lookup's.
TEST(RunAhead, MergedWithALookup) {
  for (const bool adaptive : {false, true}) {
    const AheadOutcome merged =
        GenerateAhead({.ahead = true, .adaptive = adaptive, .merged = true});
    EXPECT_GT(merged.calls.finished, 0);
    EXPECT_EQ(merged.calls.proposed, 0);
    EXPECT_GT(merged.accepted, 0);
    EXPECT_EQ(merged.tokens, GenerateAhead({.plain = true}).tokens);
  }
}

// The target's choices are checked against the grammar afterwards, so nothing waits for it.
TEST(RunAhead, AnswersByAGrammar) {
  for (const float temperature : {0.0f, 0.8f}) {
    const AheadOutcome plain =
        GenerateAhead({.temperature = temperature, .plain = true, .grammar = true});
    EXPECT_NE(plain.tokens, GenerateAhead({.temperature = temperature, .plain = true}).tokens);
    for (const bool merged : {false, true}) {
      const AheadOutcome ahead =
          GenerateAhead({.temperature = temperature, .merged = merged, .grammar = true});
      EXPECT_GT(ahead.calls.finished, 0);
      EXPECT_EQ(ahead.calls.proposed, 0);
      EXPECT_EQ(ahead.tokens, plain.tokens);
    }
  }
}

// Where the device does not draw, the host does, after the tree is known.
TEST(RunAhead, RandomChoicesDoNotDependOnDrafts) {
  const AheadOutcome random = GenerateAhead({.temperature = 0.8f});
  EXPECT_GT(random.calls.finished, 0);
  EXPECT_EQ(random.calls.proposed, 0);
  EXPECT_GT(random.accepted, 0);
  EXPECT_EQ(random.tokens, GenerateAhead({.temperature = 0.8f, .plain = true}).tokens);
}

}  // namespace
}  // namespace talon
