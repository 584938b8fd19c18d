// EAGLE-3 in the engine: its draft state follows the target whatever happens to the sequence.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/log.h"
#include "compute/host/host_token_ops.h"
#include "engine/recording_drafter.h"
#include "engine/test_engine.h"
#include "model/files/safetensors.h"
#include "spec/drafters/heads/eagle_drafter.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

constexpr DraftBudget kEagleBudget{.max_nodes = 12, .max_depth = 5, .top_k = 4};

std::string Eagle3Dir() { return std::string(TALON_SOURCE_DIR) + "/models/tiny-eagle3"; }

EagleOptions HeadOptions() {
  return {.model_path = Eagle3Dir(),
          .budget = kEagleBudget,
          .cache = {.max_length = 2048, .max_sequences = 4}};
}

std::unique_ptr<EagleDrafter> LoadHead(const EagleOptions& options, Metrics* metrics) {
  auto drafter = EagleDrafter::Load(options, *Tiny().target, Tiny().backend.get(), metrics);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

GenerateRequest BookRequest(int max_tokens) {
  GenerateRequest request;
  const std::string text = "The captain looked at the sea and said nothing for a while. ";
  request.prompt = Tiny().tokenizer->Encode(text + text + "Then", true).value();
  request.sampling.max_tokens = max_tokens;
  return request;
}

EngineOptions OneSequence() {
  EngineOptions options{.max_length = 2048, .max_sequences = 1};
  options.step.budget = kEagleBudget;
  return options;
}

struct EagleOutcome {
  GenerateResult result;
  Proposals proposals;
};

EagleOutcome Generate(
    const EagleOptions& head, const EngineOptions& options, int max_tokens,
    const std::function<bool(size_t)>& asks = [](size_t) { return true; }) {
  EagleOutcome run;
  Metrics metrics;
  const auto engine = Tiny().MakeEngine(
      options, std::make_unique<RecordingDrafter>(LoadHead(head, &metrics), &run.proposals, asks));
  run.result = engine->Generate(BookRequest(max_tokens)).value();
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  return run;
}

EagleOutcome GeneratePlainly(int max_tokens, const std::function<bool(size_t)>& asks) {
  EagleOutcome run;
  Metrics metrics;
  const auto engine = Tiny().MakeEngine(
      OneSequence(),
      std::make_unique<RecordingDrafter>(LoadHead(HeadOptions(), &metrics), &run.proposals, asks,
                                         /*discard=*/true));
  run.result = engine->Generate(BookRequest(max_tokens)).value();
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  return run;
}

// A drafter that was not asked for a long while proposes what it would have proposed anyway.
TEST(Eagle3, PauseResumeKeepsTau) {
  const size_t prompt = BookRequest(1).prompt.size();
  const EagleOutcome always = GeneratePlainly(160, [](size_t) { return true; });
  const EagleOutcome paused = GeneratePlainly(
      160, [&](size_t length) { return length < prompt + 20 || length > prompt + 100; });
  EXPECT_EQ(always.result.TokenIds(), paused.result.TokenIds());
  EXPECT_EQ(ExpectSameProposals(paused.proposals, always.proposals), 78);
}

// A pause longer than the buffer of features: the rows are computed meanwhile.
TEST(Eagle3, PauseLongerThanThePendingRows) {
  const size_t prompt = BookRequest(1).prompt.size();
  const EagleOutcome always = GeneratePlainly(720, [](size_t) { return true; });
  const EagleOutcome paused =
      GeneratePlainly(720, [&](size_t length) { return length > prompt + 700; });
  EXPECT_EQ(always.result.TokenIds(), paused.result.TokenIds());
  EXPECT_EQ(ExpectSameProposals(paused.proposals, always.proposals), 18);
}

TEST(Eagle3, PromptChunksDoNotMatter) {
  EngineOptions options = OneSequence();
  const EagleOutcome whole = Generate(HeadOptions(), options, 60);
  for (const int chunk : {1, 7}) {
    options.prefill_chunk = chunk;
    const EagleOutcome chunked = Generate(HeadOptions(), options, 60);
    EXPECT_EQ(ExpectSameProposals(whole.proposals, chunked.proposals),
              static_cast<int>(whole.proposals.size()));
  }
}

TEST(Eagle3, AWindowOverEverythingChangesNothing) {
  const EagleOutcome all = Generate(HeadOptions(), OneSequence(), 100);
  EagleOptions head = HeadOptions();
  head.window.window = 1024;
  head.window.sink = 4;
  const EagleOutcome wide = Generate(head, OneSequence(), 100);
  EXPECT_EQ(ExpectSameProposals(all.proposals, wide.proposals),
            static_cast<int>(all.proposals.size()));
}

// Past the window the drafts differ but still come, from true positions.
TEST(Eagle3, AWindowKeepsDrafting) {
  EagleOptions head = HeadOptions();
  head.window.window = 64;
  head.window.sink = 16;
  const EagleOutcome windowed = Generate(head, OneSequence(), 300);
  const EagleOutcome all = Generate(HeadOptions(), OneSequence(), 300);
  EXPECT_EQ(all.result.TokenIds(), windowed.result.TokenIds());
  EXPECT_GT(static_cast<double>(windowed.result.stats.accepted),
            0.6 * static_cast<double>(all.result.stats.accepted));
}

// Commits that fail: the step is repeated, the draft state sees only what was kept.
TEST(Eagle3, FailedCommitsKeepTheDraftInStep) {
  const EagleOutcome clean = Generate(HeadOptions(), OneSequence(), 100);
  Metrics metrics;
  Proposals proposals;
  const auto engine = Tiny().MakeEngine(
      OneSequence(), std::make_unique<RecordingDrafter>(LoadHead(HeadOptions(), &metrics),
                                                        &proposals, [](size_t) { return true; }));
  const RequestId id = engine->Submit(BookRequest(100)).value();
  SetLogLevel(LogLevel::kOff);
  for (int step = 0; engine->HasWork(); ++step) {
    if (step % 4 == 2) engine->kv().InjectCommitFault(3);
    engine->RunStep();
  }
  SetLogLevel(LogLevel::kWarning);
  EXPECT_EQ(engine->Take(id).value().TokenIds(), clean.result.TokenIds());
  EXPECT_GT(ExpectSameProposals(clean.proposals, proposals), 3);
}

// Preempted sequences are computed again, and so is their draft state.
TEST(Eagle3, PreemptionStartsTheDraftAgain) {
  EngineOptions options = OneSequence();
  options.max_sequences = 3;
  options.max_length = 160;
  std::vector<GenerateRequest> requests(3, BookRequest(90));
  for (GenerateRequest& request : requests) request.sampling.ignore_eos = true;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.push_back(static_cast<int32_t>(40 + i));
  }
  const auto plain = RunBatch(Tiny().MakeEngine(options).get(), requests);
  Metrics metrics;
  const auto calm =
      RunBatch(Tiny().MakeEngine(options, LoadHead(HeadOptions(), &metrics)).get(), requests);
  options.kv_tokens = options.PoolTokens(options.max_length) + 16;
  const auto engine = Tiny().MakeEngine(options, LoadHead(HeadOptions(), &metrics));
  SetLogLevel(LogLevel::kOff);
  const auto spec = RunBatch(engine.get(), requests);
  SetLogLevel(LogLevel::kWarning);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i;
    EXPECT_GE(spec[i].stats.accepted, calm[i].stats.accepted * 3 / 4) << "request " << i;
    EXPECT_GT(calm[i].stats.accepted, 5) << "request " << i;
  }
  EXPECT_GT(engine->metrics().Total(Counter::kRequestPreemptions), 0);
}

// ---- The drafter alone, on features of its own making ----

class Eagle3Alone : public testing::Test {
 protected:
  Eagle3Alone() : drafter_(LoadHead(HeadOptions(), &metrics_)) {
    EXPECT_TRUE(Tiny().target->SetCaptureLayers(drafter_->capture_layers()).ok());
    cols_ = 3 * Tiny().target->config().hidden_size;
    std::vector<float> features;
    for (int i = 0; i < kRows * cols_; ++i) {
      features.push_back(std::sin(static_cast<float>(i) * 0.37f) * 3);
    }
    const size_t bytes = features.size() * sizeof(float);
    auto buffer = Tiny().backend->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().message();
    features_ = std::move(buffer).value();
    Tiny().backend->CopyIn(features_.data(), features.data(), bytes);
    for (int i = 0; i <= kRows; ++i) tokens_.push_back(20 + i * 7 % 900);
  }
  void Extend(SequenceId id, int first, int count) {
    std::vector<CommittedRows> batch = {{.sequence = id, .tokens = tokens_, .first = first}};
    for (int i = 0; i < count; ++i) batch[0].rows.push_back(first + i);
    drafter_->Extend(batch, {static_cast<float*>(features_.data()), kRows, cols_, cols_});
  }
  TokenTree Propose(SequenceId id, int length) {
    const DraftRequest request{.sequence = id,
                               .tokens = std::span(tokens_).first(static_cast<size_t>(length)),
                               .budget = kEagleBudget};
    std::vector<TokenTree> trees = {TokenTree(request.tokens.back())};
    drafter_->Propose({&request, 1}, trees);
    return trees[0];
  }

  static constexpr int kRows = 64;
  Metrics metrics_;
  std::unique_ptr<EagleDrafter> drafter_;
  int cols_ = 0;
  Buffer features_;
  std::vector<int32_t> tokens_;
  std::vector<TokenTree> trees_at_once_;
};

TEST_F(Eagle3Alone, HoldsOneRowPerCommittedToken) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 10);
  EXPECT_EQ(drafter_->RowsOf(1), 10);
  EXPECT_GT(Propose(1, 11).size(), 4);
  Extend(1, 10, 3);
  EXPECT_EQ(drafter_->RowsOf(1), 13);
  drafter_->Rewind(1, 8);  // row 7 was paired with a token that is gone
  EXPECT_EQ(drafter_->RowsOf(1), 7);
}

TEST_F(Eagle3Alone, RewindAndExtendAgainGiveTheSameTree) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 40);
  const TokenTree before = Propose(1, 41);
  Extend(1, 40, 12);
  Propose(1, 53);
  drafter_->Rewind(1, 33);
  EXPECT_EQ(Propose(1, 33).size(), 1);  // its last row's feature is gone
  Extend(1, 32, 8);
  EXPECT_EQ(Propose(1, 41).tokens, before.tokens);
  Extend(1, 20, 20);  // rows that are known are replaced
  EXPECT_EQ(Propose(1, 41).tokens, before.tokens);
}

TEST_F(Eagle3Alone, ProposingTwiceGivesTheSameTree) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 20);
  const TokenTree first = Propose(1, 21);
  EXPECT_EQ(Propose(1, 21).tokens, first.tokens);
}

TEST_F(Eagle3Alone, SequencesOfABatchDoNotTouchEachOther) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 30);
  const TokenTree alone = Propose(1, 31);
  drafter_->End(1);
  for (const SequenceId id : {5, 6, 7}) ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
  for (int i = 0; i < 15; ++i) {
    Extend(5, i, 1);
    Extend(6, 2 * i, 2);
    Extend(7, 3 * i, 3);
  }
  drafter_->End(5);
  const std::vector<DraftRequest> requests = {
      {.sequence = 7, .tokens = std::span(tokens_).first(46), .budget = kEagleBudget},
      {.sequence = 6, .tokens = std::span(tokens_).first(31), .budget = kEagleBudget}};
  std::vector<TokenTree> trees = {TokenTree(tokens_[45]), TokenTree(tokens_[30])};
  drafter_->Propose(requests, trees);
  EXPECT_EQ(trees[1].tokens, alone.tokens);
  EXPECT_EQ(trees[1].parents, alone.parents);
  EXPECT_GT(trees[0].size(), 4);
  // One that cannot draft yet does not keep the next from drafting.
  drafter_->Rewind(7, 40);
  const std::vector<DraftRequest> again = {
      {.sequence = 7, .tokens = std::span(tokens_).first(40), .budget = kEagleBudget}, requests[1]};
  trees = {TokenTree(tokens_[39]), TokenTree(tokens_[30])};
  drafter_->Propose(again, trees);
  EXPECT_EQ(trees[0].size(), 1);
  EXPECT_EQ(trees[1].tokens, alone.tokens);
}

TEST_F(Eagle3Alone, ABatchIsExtendedAsEachOfItsSequences) {
  const int rows[] = {3, 0, 9, 5};
  for (const bool at_once : {true, false}) {
    std::vector<CommittedRows> batch;
    for (SequenceId id = 1; id <= 4; ++id) {
      ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
      Extend(id, 0, static_cast<int>(id));
      batch.push_back({.sequence = id, .tokens = tokens_, .first = static_cast<int>(id)});
      for (int i = 0; i < rows[id - 1]; ++i) batch.back().rows.push_back(batch.back().first + i);
    }
    const MatrixView features{static_cast<float*>(features_.data()), kRows, cols_, cols_};
    if (at_once) drafter_->Extend(batch, features);
    for (SequenceId id = 1; id <= 4; ++id) {
      if (!at_once) drafter_->Extend({&batch[id - 1], 1}, features);
      const int known = static_cast<int>(id) + rows[id - 1];
      EXPECT_EQ(drafter_->RowsOf(id), known);
      const TokenTree tree = Propose(id, known + 1);
      if (at_once) {
        trees_at_once_.push_back(tree);
      } else {
        EXPECT_EQ(tree.tokens, trees_at_once_[id - 1].tokens);
      }
      EXPECT_GT(tree.size(), 1);
    }
    for (SequenceId id = 1; id <= 4; ++id) drafter_->End(id);
  }
}

// The last row of a block pairs with a token that another sequence need not have.
TEST_F(Eagle3Alone, RecallsARowWithAnotherSuccessor) {
  EagleOptions options = HeadOptions();
  options.cache.prefix_index = true;
  drafter_ = LoadHead(options, &metrics_);
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 33);
  drafter_->End(1);
  ++tokens_[32];
  ASSERT_TRUE(drafter_->Begin(2, tokens_).ok());
  drafter_->Recall(2, tokens_, 32);
  EXPECT_EQ(drafter_->RowsOf(2), 32);
  EXPECT_EQ(metrics_.Total(Counter::kKvPrefixDraftRowsRecomputed), 1);
  ASSERT_TRUE(drafter_->Begin(3, tokens_).ok());
  Extend(3, 0, 32);
  const TokenTree computed = Propose(3, 33);
  EXPECT_GT(computed.size(), 4);
  EXPECT_EQ(Propose(2, 33).tokens, computed.tokens);
}

// All seven blocks are in use, so that the block with the other successor cannot be copied. Rows
// that came later used to be hidden from the drafts, as if they had been skipped.
TEST_F(Eagle3Alone, RecallsFullBlocksOnlyWhereThereIsNoRoom) {
  EagleOptions options = HeadOptions();
  options.cache = {.max_length = 256, .max_sequences = 3, .kv_tokens = 16, .prefix_index = true};
  drafter_ = LoadHead(options, &metrics_);
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 33);
  Propose(1, 34);  // three blocks
  std::vector<int32_t> others = tokens_;
  ++others[0];
  ASSERT_TRUE(drafter_->Begin(2, others).ok());
  Extend(2, 0, 64);
  Propose(2, 65);  // four more
  ++tokens_[32];
  ASSERT_TRUE(drafter_->Begin(3, tokens_).ok());
  drafter_->Recall(3, tokens_, 32);
  EXPECT_EQ(drafter_->RowsOf(3), 16);
  EXPECT_EQ(metrics_.Total(Counter::kKvPrefixDraftRowsRecomputed), 0);
  drafter_->End(2);
  drafter_->Rewind(3, 17);
  tokens_[32] += 5;  // the sequence goes on with another token
  Extend(3, 16, 16);
  const TokenTree recalled = Propose(3, 33);
  ASSERT_TRUE(drafter_->Begin(4, tokens_).ok());
  Extend(4, 0, 32);
  EXPECT_GT(recalled.size(), 4);
  EXPECT_EQ(recalled.tokens, Propose(4, 33).tokens);
}

TEST_F(Eagle3Alone, TooManySequencesAreRefused) {
  for (SequenceId id = 1; id <= 4; ++id) ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
  EXPECT_EQ(drafter_->Begin(9, tokens_).message(), "drafter: 5 sequences, limit 4");
  drafter_->End(2);
  EXPECT_TRUE(drafter_->Begin(9, tokens_).ok());
}

// Once it looked for room forever: every sequence keeps its last row back.
TEST_F(Eagle3Alone, MoreSequencesThanPendingRows) {
  EagleOptions options = HeadOptions();
  options.budget = {.max_nodes = 2, .max_depth = 1, .top_k = 1};
  options.cache.max_sequences = 600;
  options.cache.max_length = 64;
  drafter_ = LoadHead(options, &metrics_);
  for (SequenceId id = 1; id <= 600; ++id) {
    ASSERT_TRUE(drafter_->Begin(id, tokens_).ok());
    Extend(id, 0, 1);
  }
  for (int row = 1; row < 6; ++row) {
    for (SequenceId id = 1; id <= 600; ++id) Extend(id, row, 1);
  }
  EXPECT_EQ(drafter_->RowsOf(1), 6);
  EXPECT_EQ(Propose(600, 7).size(), 2);
  EXPECT_EQ(metrics_.Total(Counter::kSpecFallback), 0);
}

TEST_F(Eagle3Alone, NanFeaturesGiveNoTree) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tiny().backend->CopyIn(static_cast<float*>(features_.data()) + 9 * cols_, &nan, sizeof(nan));
  Extend(1, 0, 10);
  EXPECT_EQ(Propose(1, 11).size(), 1);
  EXPECT_EQ(metrics_.Get(Counter::kSpecFallback, "draft_nan"), 1);
}

// Depths of the trees of `count` proposals in a row for the same 11 tokens.
std::vector<int> DepthsAtPrice(EagleDrafter* drafter, std::span<const int32_t> tokens, int count) {
  DraftRequest request{.sequence = 1, .tokens = tokens.first(11), .budget = kEagleBudget};
  request.budget.prices.token = 1e-12;
  std::vector<int> depths;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenTree> trees = {TokenTree(request.tokens.back())};
    drafter->Propose({&request, 1}, trees);
    depths.push_back(TreeDepths(trees[0].parents).back());
  }
  return depths;
}

// Where trees grow on the device no level is waited for but a few, which are timed first.
TEST_F(Eagle3Alone, ALevelThatDoesNotPayIsNotRun) {
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 10);
  EXPECT_GT(TreeDepths(Propose(1, 11).parents).back(), 1);
  EXPECT_EQ(DepthsAtPrice(drafter_.get(), tokens_, 6).back(), 1);
}

// The same for trees whose levels are queued ahead of the host, here by the device's twin.
TEST_F(Eagle3Alone, ALevelThatDoesNotPayIsNotQueued) {
  auto* host = dynamic_cast<HostTokenOps*>(Tiny().backend->token_ops());
  if (host != nullptr) host->GrowTreesAhead(true);
  drafter_ = LoadHead(HeadOptions(), &metrics_);
  if (host != nullptr) host->GrowTreesAhead(false);
  ASSERT_TRUE(drafter_->Begin(1, tokens_).ok());
  Extend(1, 0, 10);
  const int whole = TreeDepths(Propose(1, 11).parents).back();  // without a price
  EXPECT_GT(whole, 1);
  EXPECT_EQ(DepthsAtPrice(drafter_.get(), tokens_, 5),
            (std::vector<int>{whole, whole, whole, 1, 1}));
  DraftRequest request{
      .sequence = 1, .tokens = std::span(tokens_).first(11), .budget = kEagleBudget};
  request.budget.prices.token = 1e-12;
  std::vector<TokenTree> outlines = {TokenTree(request.tokens.back())};
  ASSERT_TRUE(drafter_->GrowsAhead());
  ASSERT_EQ(drafter_->BeginTrees({&request, 1}, request.budget.max_nodes, outlines),
            std::vector<bool>{true});
  EXPECT_EQ(outlines[0].size(), 1 + kEagleBudget.top_k);  // level 1 alone
  std::vector<TokenTree> trees = {TokenTree(request.tokens.back())};
  drafter_->FinishTrees(trees);
  EXPECT_EQ(TreeDepths(trees[0].parents).back(), 1);
  EXPECT_EQ(TreeDepths(Propose(1, 11).parents).back(), whole);
}

// ---- MERGED ----

TEST(Merged, TauAtLeastBestPart) {
  const std::vector<std::string> texts = {
      "---\ntitle: Array.prototype.map()\nslug: "
      "Web/JavaScript/Reference/Global_Objects/Array/map\n",
      "---\ntitle: color\nslug: Web/CSS/color\n", "Once upon a time there was a king who",
      "The captain looked at the sea. The captain looked at the"};
  const auto tau = [&](const std::string& name) {
    Metrics metrics;
    auto drafter = MakeDrafter(DrafterList::Parse(name).value(),
                               {.draft_model_path = Eagle3Dir(), .budget = kEagleBudget},
                               {.backend = Tiny().backend.get(),
                                .decoder = Tiny().target.get(),
                                .metrics = &metrics,
                                .vocab_size = 8192,
                                .cache = {.max_length = 2048, .max_sequences = 1}});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    EngineOptions options = OneSequence();
    options.step.budget.max_depth = 11;
    const auto engine = Tiny().MakeEngine(options, std::move(drafter).value());
    int64_t emitted = 0, passes = 0;
    for (const std::string& text : texts) {
      GenerateRequest request;
      request.prompt = Tiny().tokenizer->Encode(text, true).value();
      request.sampling.max_tokens = 120;
      const GenerateResult result = engine->Generate(std::move(request)).value();
      emitted += result.stats.emitted;
      passes += result.stats.passes;
    }
    EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
    return static_cast<double>(emitted) / static_cast<double>(passes);
  };
  const double best = std::max(tau("EAGLE3"), tau("SUFFIX"));
  // A device has the tree of one source or the other, and tries both now and then.
  const double share = std::getenv("TALON_TEST_DEVICE") == nullptr ? 0.98 : 0.9;
  EXPECT_GT(tau("EAGLE3,SUFFIX"), share * best);
}

}  // namespace
}  // namespace talon
