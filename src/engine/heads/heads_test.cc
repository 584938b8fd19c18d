// Heads of every kind in the engine: the same text as plain decoding, and a draft state that
// follows the target whatever happens to the sequence. The heads are random, so their drafts are
// rarely accepted: what they propose is compared instead.
#include <gtest/gtest.h>

#include <numeric>

#include "base/log.h"
#include "engine/heads/test_drafters.h"
#include "engine/recording_drafter.h"
#include "engine/test_engine.h"
#include "grammar/gbnf.h"
#include "grammar/matcher.h"
#include "model/test_model.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

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
