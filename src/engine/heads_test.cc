// Heads of every kind in the engine: the same text as plain decoding, and a draft state that
// follows the target whatever happens to the sequence. The heads are random, so their drafts are
// rarely accepted: what they propose is compared instead.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/log.h"
#include "compute/host/host_token_ops.h"
#include "engine/recording_drafter.h"
#include "engine/test_engine.h"
#include "grammar/gbnf.h"
#include "grammar/matcher.h"
#include "model/heads/test_eagle.h"
#include "model/heads/test_heads.h"
#include "model/test_model.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

constexpr DraftBudget kHeadsBudget{.max_nodes = 24, .max_depth = 6, .top_k = 4};
constexpr int kHeadsMaxLength = 256;
constexpr int kHeadsSequences = 35;  // more than a block head runs in one pass

// The head for a drafter, written once.
std::string HeadDir(DrafterKind kind) {
  static std::map<DraftKind, std::unique_ptr<TempDirectory>> dirs;
  const DraftKind draft = kind == DrafterKind::kEagle     ? DraftKind::kEagle
                          : kind == DrafterKind::kEagle3  ? DraftKind::kEagle3
                          : kind == DrafterKind::kJetspec ? DraftKind::kJetspec
                          : kind == DrafterKind::kDspark  ? DraftKind::kDspark
                                                          : DraftKind::kDflash;
  auto& dir = dirs[draft];
  if (dir == nullptr) {
    dir = std::make_unique<TempDirectory>();
    const ModelConfig& target = Small().target->config();
    if (draft == DraftKind::kEagle3) {
      MakeTestHead(target).Write(dir->path());
    } else {
      WriteTestHead(dir->path(), draft, target, 21);
    }
  }
  return dir->path();
}

// While it lives, drafters are made that grow trees ahead of the host, as on devices.
class GrowsAheadNow {
 public:
  explicit GrowsAheadNow(bool ahead = true) { Set(ahead); }
  ~GrowsAheadNow() { Set(false); }

 private:
  static void Set(bool ahead) {
    auto* host = dynamic_cast<HostTokenOps*>(Small().backend->token_ops());
    if (host != nullptr) host->GrowTreesAhead(ahead);
  }
};

std::unique_ptr<Drafter> NewHeadDrafter(const std::string& name, const DraftBudget& budget,
                                        bool prefix_index, Metrics* metrics) {
  const DrafterList list = DrafterList::Parse(name).value();
  auto drafter = MakeDrafter(
      list,
      {.draft_model_path = HeadDir(list.kinds().front()), .budget = budget, .top_k = budget.top_k},
      {.backend = Small().backend.get(),
       .decoder = Small().target.get(),
       .metrics = metrics,
       .vocab_size = 512,
       .cache = {.max_length = kHeadsMaxLength,
                 .max_sequences = kHeadsSequences,
                 .prefix_index = prefix_index}});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

// Partial views of five blocks, from 100 tokens on.
SpecPvConfig SmallViews() {
  return {.enabled = true,
          .sink_blocks = 1,
          .retrieval_blocks = 2,
          .window_blocks = 2,
          .buffer_tokens = 40,
          .partial_threshold = 100};
}

// Lets the drafter follow the target in some steps only.
class NappingPolicy : public FixedPolicy {
 public:
  explicit NappingPolicy(unsigned seed) : random_(seed) {}
  void BeginStep(const StepShape&) override {
    if (--left_ > 0) return;
    follows_ = !follows_;
    left_ = 1 + static_cast<int>(random_() % (follows_ ? 40 : 12));
  }
  bool Follows() const override { return follows_; }

 private:
  std::mt19937 random_;
  bool follows_ = false;
  int left_ = 0;
};

EngineOptions HeadsOptions(int sequences = 1) {
  EngineOptions options{
      .max_length = kHeadsMaxLength, .max_sequences = sequences, .kv_audit = true};
  options.step.budget = kHeadsBudget;
  return options;
}

GenerateRequest HeadsRequest(int seed, int prompt, int max_tokens, float temperature = 0) {
  std::mt19937 random(seed);
  GenerateRequest request;
  request.prompt = RandomPrompt(random, prompt, 512);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = static_cast<uint64_t>(seed);
  request.sampling.ignore_eos = true;
  return request;
}

// Allows three quarters of the tokens, other ones after each.
std::shared_ptr<Matcher> LettersInTurn() {
  static const TokenTrie trie = [] {
    std::vector<std::string> letters;
    for (int i = 0; i < 512; ++i) letters.push_back(std::string(1, static_cast<char>('a' + i % 4)));
    return TokenTrie(std::move(letters));
  }();
  return std::make_shared<Matcher>(std::move(*RegexGrammar("([abc][bcd])*")), &trie);
}

// Wide trees at a high temperature, so that some random drafts are accepted. Some of the requests
// have a grammar.
// Returns how many tokens each request took of the drafts.
std::vector<int64_t> ExpectPlainTokens(const std::string& drafter) {
  const DraftBudget budget{.max_nodes = 64, .max_depth = 4, .top_k = 48};
  EngineOptions options = HeadsOptions(4);
  options.prefill_chunk = 8;
  options.step.budget = budget;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 8; ++i)
    requests.push_back(HeadsRequest(i, 3 + 5 * i, 50, i % 4 == 0 ? 0 : 1.5f));
  for (int i = 3; i < 6; ++i) requests[i].sampling.grammar = LettersInTurn();
  const auto plain = RunBatch(Small().MakeEngine(options).get(), requests);
  Metrics metrics;
  const auto engine = Small().MakeEngine(options, NewHeadDrafter(drafter, budget, false, &metrics));
  const auto spec = RunBatch(engine.get(), requests);
  std::vector<int64_t> accepted;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i;
    accepted.push_back(spec[i].stats.accepted);
    if (requests[i].sampling.grammar == nullptr) continue;
    EXPECT_EQ(plain[i].finish, FinishReason::kLength);
    int place = 0;  // "d" begins no pair, "a" ends none
    for (const int32_t token : spec[i].TokenIds()) EXPECT_NE(token % 4, place++ % 2 == 0 ? 3 : 0);
  }
  EXPECT_GT(std::accumulate(accepted.begin(), accepted.end(), int64_t{0}), 5);
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  return accepted;
}

class HeadsTest : public testing::TestWithParam<const char*> {
 protected:
  struct Outcome {
    GenerateResult result;
    Proposals proposals;
  };
  // What is proposed at every length of a plain run, where `asks` allows.
  Outcome Record(
      const EngineOptions& options, const GenerateRequest& request,
      const std::function<bool(size_t)>& asks = [](size_t) { return true; }) {
    Outcome run;
    Metrics metrics;
    const auto engine = Small().MakeEngine(
        options, std::make_unique<RecordingDrafter>(
                     NewHeadDrafter(GetParam(), kHeadsBudget, options.prefix_cache, &metrics),
                     &run.proposals, asks, /*discard=*/true));
    run.result = engine->Generate(request).value();
    EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
    return run;
  }
  // They are trees, too, not roots alone.
  static void ExpectSameDrafts(const Proposals& a, const Proposals& b, int at_least) {
    EXPECT_GE(ExpectSameProposals(a, b), at_least);
    for (const auto& [length, tree] : a) {
      if (!b.contains(length)) continue;
      EXPECT_GT(tree.size(), 1) << "at length " << length;
    }
  }
};

// With trees that the host grows, and with the same ones where they grow ahead of it.
TEST_P(HeadsTest, GivesPlainTokens) {
  const std::vector<int64_t> accepted = ExpectPlainTokens(GetParam());
  const GrowsAheadNow ahead;
  EXPECT_EQ(ExpectPlainTokens(GetParam()), accepted);
}

TEST_P(HeadsTest, PausesAndChunksDoNotMatter) {
  const GenerateRequest request = HeadsRequest(3, 40, 60);
  const Outcome always = Record(HeadsOptions(), request);
  const Outcome paused =
      Record(HeadsOptions(), request, [](size_t length) { return length < 50 || length > 80; });
  EXPECT_EQ(always.result.TokenIds(), paused.result.TokenIds());
  ExpectSameDrafts(paused.proposals, always.proposals, 25);
  for (const int chunk : {1, 7}) {
    EngineOptions options = HeadsOptions();
    options.prefill_chunk = chunk;
    ExpectSameDrafts(Record(options, request).proposals, always.proposals, 58);
  }
}

// Rewinds: the step is repeated, the draft state sees only what was kept.
TEST_P(HeadsTest, FailedCommitsKeepTheDraftInStep) {
  const GenerateRequest request = HeadsRequest(4, 30, 40);
  const Outcome clean = Record(HeadsOptions(), request);
  Metrics metrics;
  Proposals proposals;
  const auto engine = Small().MakeEngine(
      HeadsOptions(),
      std::make_unique<RecordingDrafter>(NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics),
                                         &proposals, [](size_t) { return true; }));
  const RequestId id = engine->Submit(request).value();
  SetLogLevel(LogLevel::kOff);
  for (int step = 0; engine->HasWork(); ++step) {
    if (step % 4 == 2) engine->kv().InjectCommitFault(3);
    engine->RunStep();
  }
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(engine->Take(id).value().TokenIds(), clean.result.TokenIds());
  ExpectSameDrafts(proposals, clean.proposals, 20);
}

TEST_P(HeadsTest, CachedPrefixesKeepProposals) {
  const GenerateRequest request = HeadsRequest(5, 70, 24);
  EngineOptions options = HeadsOptions();
  const Outcome cold = Record(options, request);
  options.prefix_cache = true;
  Metrics metrics;
  Proposals proposals;
  const auto engine =
      Small().MakeEngine(options, std::make_unique<RecordingDrafter>(
                                      NewHeadDrafter(GetParam(), kHeadsBudget, true, &metrics),
                                      &proposals, [](size_t) { return true; },
                                      /*discard=*/true));
  for (int round = 0; round < 2; ++round) {
    proposals.clear();
    const GenerateResult warm = engine->Generate(request).value();
    EXPECT_EQ(warm.stats.cached_tokens > 0, round > 0);
    EXPECT_EQ(warm.TokenIds(), cold.result.TokenIds());
    ExpectSameDrafts(proposals, cold.proposals, 22);
  }
}

// The target knows the prompt from a run without speculation, the draft does not.
TEST_P(HeadsTest, DraftsAfterRowsItNeverSaw) {
  GenerateRequest request = HeadsRequest(6, 70, 24);
  EngineOptions options = HeadsOptions();
  options.prefix_cache = true;
  Metrics metrics;
  Proposals proposals;
  const auto engine = Small().MakeEngine(
      options,
      std::make_unique<RecordingDrafter>(NewHeadDrafter(GetParam(), kHeadsBudget, true, &metrics),
                                         &proposals, [](size_t) { return true; }));
  request.speculate = false;
  const GenerateResult plain = engine->Generate(request).value();
  request.speculate = true;
  const GenerateResult warm = engine->Generate(request).value();
  EXPECT_GT(warm.stats.cached_tokens, 32);
  EXPECT_EQ(warm.TokenIds(), plain.TokenIds());
  ASSERT_FALSE(proposals.empty());
  for (const auto& [length, tree] : proposals) EXPECT_GT(tree.size(), 1) << "length " << length;
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
}

TEST_P(HeadsTest, PreemptionStartsTheDraftAgain) {
  EngineOptions options = HeadsOptions(3);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(HeadsRequest(10 + i, 50, 60, 0.8f));
  const auto plain = RunBatch(Small().MakeEngine(options).get(), requests);
  options.kv_tokens = 256;
  Metrics metrics;
  const auto engine =
      Small().MakeEngine(options, NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics));
  SetLogLevel(LogLevel::kOff);
  const auto spec = RunBatch(engine.get(), requests);
  SetLogLevel(LogLevel::kWarning);
  EXPECT_GT(engine->metrics().Total(Counter::kRequestPreemptions), 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i;
    EXPECT_GT(spec[i].stats.drafted, 100) << "request " << i;
  }
}

TEST_P(HeadsTest, PartialVerificationIsExact) {
  const GenerateRequest request = HeadsRequest(8, 150, 60, 0.7f);
  const GenerateResult plain = Small().MakeEngine(HeadsOptions())->Generate(request).value();
  EngineOptions options = HeadsOptions();
  options.step.specpv = SmallViews();
  Metrics metrics;
  const auto engine =
      Small().MakeEngine(options, NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics));
  const GenerateResult result = engine->Generate(request).value();
  EXPECT_GT(result.stats.partial_passes, 0);
  EXPECT_EQ(result.TokenIds(), plain.TokenIds());
}

// With partial views, too, whose provisional tokens are taken back.
TEST_P(HeadsTest, DraftsAgainAfterNaps) {
  const GenerateRequest request = HeadsRequest(8, 100, 150, 0.7f);
  EngineOptions options = HeadsOptions();
  const GenerateResult plain = Small().MakeEngine(options)->Generate(request).value();
  for (const bool partial : {false, true}) {
    options.step.specpv = partial ? SmallViews() : SpecPvConfig();
    Metrics metrics;
    Proposals proposals;
    const auto engine = Small().MakeEngine(
        options,
        std::make_unique<RecordingDrafter>(NewHeadDrafter(GetParam(), kHeadsBudget, true, &metrics),
                                           &proposals, [](size_t) { return true; }),
        std::make_unique<NappingPolicy>(5));
    EXPECT_EQ(engine->Generate(request).value().TokenIds(), plain.TokenIds());
    int drafted = 0, slept = 0;
    for (const auto& [length, tree] : proposals) ++(tree.size() > 1 ? drafted : slept);
    EXPECT_GT(drafted, 10);
    EXPECT_GT(slept, 10);
    EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  }
}

// Trees, chunks, batches, pools, caches and temperatures at random; TALON_CASES sets which.
TEST_P(HeadsTest, RandomCasesGivePlainTokens) {
  const CaseRange cases = WantedCases(6);
  SetLogLevel(LogLevel::kOff);  // small pools preempt
  for (int i = cases.first; i < cases.end; ++i) {
    std::mt19937 random(i);
    const auto draw = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const DraftBudget budget{
        .max_nodes = draw(2, 64), .max_depth = draw(1, 8), .top_k = draw(1, 40)};
    EngineOptions options = HeadsOptions(draw(1, 4));
    options.prefill_chunk = draw(1, 40);
    options.prefix_cache = draw(0, 1) == 1;
    options.step.budget = budget;
    std::vector<GenerateRequest> requests;
    for (int j = draw(1, 5); j > 0; --j) {
      // Some prompts are equal, so that the cache is used.
      requests.push_back(
          HeadsRequest(1000 * i + j / 2, draw(1, 60), draw(1, 40), 0.5f * draw(0, 4)));
    }
    const auto plain = RunBatch(Small().MakeEngine(options).get(), requests);
    if (draw(0, 2) == 0) options.kv_tokens = 256;
    Metrics metrics;
    const GrowsAheadNow ahead(draw(0, 1) == 1);
    std::unique_ptr<Policy> policy;
    if (draw(0, 1) == 1) policy = std::make_unique<NappingPolicy>(i);
    const auto engine = Small().MakeEngine(
        options, NewHeadDrafter(GetParam(), budget, options.prefix_cache, &metrics),
        std::move(policy));
    const auto spec = RunBatch(engine.get(), requests);
    for (size_t j = 0; j < requests.size(); ++j) {
      ASSERT_EQ(plain[j].TokenIds(), spec[j].TokenIds()) << "case " << i << ", request " << j;
    }
    ASSERT_EQ(metrics.Total(Counter::kSpecFallback), 0) << "case " << i;
  }
  SetLogLevel(LogLevel::kWarning);
}

// ---- The drafter alone, on features of its own making ----

class HeadsAlone : public HeadsTest {
 protected:
  static constexpr int kRows = 64;
  HeadsAlone() : drafter_(NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics_)) {
    const auto layers = static_cast<int>(drafter_->capture_layers().size());
    auto features = NewScratch(Small().backend.get(), kRows, layers * 64);
    EXPECT_TRUE(features.ok()) << features.status().message();
    features_ = std::move(features).value();
    for (int row = 0; row < kRows; ++row) {
      std::vector<float> values;
      for (int i = 0; i < features_.all.cols; ++i) {
        values.push_back(std::sin(static_cast<float>(row * 977 + i) * 0.37f) * 3);
      }
      Small().backend->CopyIn(features_.all.Rows(row, 1).data, values.data(),
                              values.size() * sizeof(float));
    }
    for (int i = 0; i <= kRows; ++i) tokens_.push_back(20 + i * 7 % 400);
  }
  CommittedRows Rows(SequenceId id, int first, int count) const {
    CommittedRows committed{.sequence = id, .tokens = tokens_, .first = first, .rows = {}};
    for (int i = 0; i < count; ++i) committed.rows.push_back(first + i);
    return committed;
  }
  void Extend(SequenceId id, int first, int count) {
    const CommittedRows committed = Rows(id, first, count);
    drafter_->Extend({&committed, 1}, features_.all);
  }
  DraftRequest RequestOf(SequenceId id, int length) const {
    return {.sequence = id,
            .tokens = std::span(tokens_).first(static_cast<size_t>(length)),
            .budget = kHeadsBudget};
  }
  TokenTree Propose(SequenceId id, int length, int top_k = kHeadsBudget.top_k) {
    DraftRequest request = RequestOf(id, length);
    request.budget.top_k = top_k;
    TokenTree tree(request.tokens.back());
    drafter_->Propose({&request, 1}, {&tree, 1});
    return tree;
  }

  Metrics metrics_;
  std::unique_ptr<Drafter> drafter_;
  Scratch features_;
  std::vector<int32_t> tokens_;
};

TEST_P(HeadsAlone, RewindAndExtendAgainGiveTheSameTree) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 40);
  const TokenTree before = Propose(1, 41);
  EXPECT_EQ(before.size(), kHeadsBudget.max_nodes);
  EXPECT_EQ(Propose(1, 41).tokens, before.tokens) << "asked twice";
  Extend(1, 40, 12);
  Propose(1, 53);
  drafter_->Rewind(1, 33);
  EXPECT_EQ(Propose(1, 34).size(), 1) << "its last row is gone";
  Extend(1, 32, 8);
  EXPECT_EQ(Propose(1, 41).tokens, before.tokens);
  Extend(1, 20, 20);  // rows that are known are replaced
  EXPECT_EQ(Propose(1, 41).tokens, before.tokens);
  Extend(1, 50, 2);  // rows between are missing
  EXPECT_EQ(Propose(1, 53).size(), 1);
}

// It was not told of rows 20 to 39: it goes on with the next whole block, after the last one
// before.
TEST_P(HeadsAlone, LeavesOutRowsThatItWasNotToldOf) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 20);
  Extend(1, 40, 20);
  const TokenTree after = Propose(1, 61);
  EXPECT_EQ(after.size(), kHeadsBudget.max_nodes);
  ASSERT_TRUE(drafter_->Begin(2, tokens_).ok());
  Extend(2, 0, 16);
  Extend(2, 48, 12);
  EXPECT_EQ(Propose(2, 61).tokens, after.tokens);
  ASSERT_TRUE(drafter_->Begin(3, tokens_).ok());
  Extend(3, 0, 60);
  EXPECT_NE(Propose(3, 61).probs, after.probs) << "it sees the rows between";
  drafter_->Rewind(1, 36);
  EXPECT_EQ(Propose(1, 36).size(), 1) << "row 34 is missing";
  // Told again from there on, or from a row of the block after.
  for (const int length : {36, 49}) {
    drafter_->Rewind(1, length);
    Extend(1, length - 1, 61 - length);
    EXPECT_EQ(Propose(1, 61).tokens, after.tokens) << "length " << length;
  }
  drafter_->End(1);
  drafter_->End(2);
  EXPECT_EQ(metrics_.Total(Counter::kSpecFallback), 0);
}

// Before the tree is placed in a pass, and without one.
TEST_P(HeadsAlone, AnOutlineHasRoomForTheTree) {
  const GrowsAheadNow ahead;
  drafter_ = NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics_);
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 40);
  const TokenTree known = Propose(1, 41);
  // A Markov bias makes candidates depend on the path: then the host grows the tree.
  ASSERT_EQ(drafter_->GrowsAhead(), drafter_->name() != "DSPARK");
  if (!drafter_->GrowsAhead()) return;
  const DraftRequest request = RequestOf(1, 41);
  TokenTree tree(request.tokens.back());
  ASSERT_EQ(drafter_->BeginTrees({&request, 1}, kHeadsBudget.max_nodes, {&tree, 1}),
            std::vector<bool>{true});
  EXPECT_EQ(tree.size(), known.size());
  EXPECT_EQ(TreeDepths(tree.parents).back(), std::min(kHeadsBudget.max_depth, tree.size() - 1));
  tree = TokenTree(request.tokens.back());
  drafter_->FinishTrees({&tree, 1});
  EXPECT_EQ(tree.tokens, known.tokens);
  EXPECT_EQ(tree.parents, known.parents);
}

TEST_P(HeadsAlone, OneCandidatePerNodeMakesAChain) {
  DraftBudget budget = kHeadsBudget;
  budget.top_k = 1;
  drafter_ = NewHeadDrafter(GetParam(), budget, false, &metrics_);
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 40);
  const TokenTree tree = Propose(1, 41, /*top_k=*/1);
  ASSERT_GT(tree.size(), 2);
  for (int node = 1; node < tree.size(); ++node) EXPECT_EQ(tree.parents[node], node - 1);
}

// All rows together are more than one product or pass takes.
TEST_P(HeadsAlone, ABatchIsDraftedAsEachOfItsSequences) {
  const GrowsAheadNow ahead;
  drafter_ = NewHeadDrafter(GetParam(), kHeadsBudget, false, &metrics_);
  std::vector<CommittedRows> batch;
  std::vector<DraftRequest> requests;
  std::vector<TokenTree> expected;
  for (SequenceId id = 1; id <= kHeadsSequences; ++id) {
    const int rows = kRows - static_cast<int>(id);
    ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
    Extend(id, 0, rows);
    expected.push_back(Propose(id, rows + 1));
    EXPECT_EQ(expected.back().size(), kHeadsBudget.max_nodes);
    drafter_->Rewind(id, 1);
    batch.push_back(Rows(id, 0, rows));
    requests.push_back(RequestOf(id, rows + 1));
  }
  EXPECT_FALSE(drafter_->Begin(99, tokens_).ok()) << "no more sequences";
  drafter_->Extend(batch, features_.all);
  std::vector<TokenTree> trees;
  for (const DraftRequest& request : requests) trees.emplace_back(request.tokens.back());
  const std::vector<TokenTree> roots = trees;
  const auto expect_trees = [&] {
    for (size_t i = 0; i < trees.size(); ++i) {
      EXPECT_EQ(trees[i].tokens, expected[i].tokens) << "sequence " << i;
      EXPECT_EQ(trees[i].parents, expected[i].parents) << "sequence " << i;
    }
  };
  drafter_->Propose(requests, trees);
  expect_trees();
  if (drafter_->GrowsAhead()) {
    trees = roots;
    drafter_->BeginTrees(requests, kHeadsBudget.max_nodes, trees);
    trees = roots;
    drafter_->FinishTrees(trees);
    expect_trees();
  }
  EXPECT_EQ(metrics_.Total(Counter::kSpecFallback), 0);
}

// Steps without drafts: rows of several sequences wait side by side.
TEST_P(HeadsAlone, PausesOfSeveralSequencesDoNotMatter) {
  for (SequenceId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
    Extend(id, 0, 10 * id);
  }
  for (int step = 0; step < 12; ++step) {
    std::vector<CommittedRows> batch;
    for (int id = step < 6 ? 3 : 2; id > 0; --id) batch.push_back(Rows(id, 10 * id + step, 1));
    drafter_->Extend(batch, features_.all);
    if (step == 6) drafter_->End(3);
  }
  drafter_->Rewind(1, 20);
  Extend(1, 19, 4);
  const TokenTree one = Propose(1, 24);
  const TokenTree two = Propose(2, 33);
  drafter_->End(1);
  drafter_->End(2);
  ASSERT_TRUE(drafter_->Begin(4, tokens_).ok());
  Extend(4, 0, 23);
  EXPECT_EQ(Propose(4, 24).tokens, one.tokens);
  Extend(4, 23, 9);
  EXPECT_EQ(Propose(4, 33).tokens, two.tokens);
  EXPECT_EQ(one.size(), kHeadsBudget.max_nodes);
}

INSTANTIATE_TEST_SUITE_P(Heads, HeadsAlone, testing::Values("EAGLE", "DFLASH", "JETSPEC", "DSPARK"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Heads, HeadsTest,
                         testing::Values("EAGLE", "EAGLE3", "DFLASH", "JETSPEC", "DSPARK"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Heads, AreSourcesOfMerged) {
  for (const char* list : {"DFLASH,SUFFIX", "DSPARK,NGRAM", "EAGLE,NGRAM,SUFFIX"}) {
    SCOPED_TRACE(list);
    ExpectPlainTokens(list);
  }
}

TEST(Heads, WrongHeadsGetTheRightName) {
  const auto error_of = [](const char* name, DrafterKind head, const std::string& map = "") {
    Metrics metrics;
    return std::string(
        MakeDrafter(DrafterList::Parse(name).value(),
                    {.draft_model_path = HeadDir(head), .budget = kHeadsBudget, .token_map = map},
                    {.backend = Small().backend.get(),
                     .decoder = Small().target.get(),
                     .metrics = &metrics,
                     .vocab_size = 512,
                     .cache = {.max_length = kHeadsMaxLength}})
            .status()
            .message());
  };
  EXPECT_NE(error_of("EAGLE3", DrafterKind::kEagle)
                .find("is an EAGLE-1 or EAGLE-2 head; use --speculative-algorithm EAGLE"),
            std::string::npos);
  EXPECT_NE(error_of("DFLASH", DrafterKind::kJetspec)
                .find("is a JetSpec head; use --speculative-algorithm JETSPEC"),
            std::string::npos);
  EXPECT_NE(error_of("JETSPEC", DrafterKind::kDspark)
                .find("is a DSpark head; use --speculative-algorithm DSPARK"),
            std::string::npos);
  EXPECT_NE(error_of("STANDALONE", DrafterKind::kEagle).find("use --speculative-algorithm EAGLE"),
            std::string::npos);
  EXPECT_EQ(error_of("DFLASH", DrafterKind::kDflash, "hot.json"),
            "speculative_token_map: is for EAGLE, the drafter is DFLASH");
}

}  // namespace
}  // namespace talon
