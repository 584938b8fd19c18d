#include "remote/remote_drafter.h"

#include <gtest/gtest.h>

#include "remote/fake_links.h"

namespace talon {
namespace {

using Kind = FakeFault::Kind;
using Tokens = std::vector<int32_t>;

// Runs a few sequences as the engine does: propose, verify, observe.
class RemoteDrafterTest : public testing::Test {
 protected:
  void Make(int wrong_every, DraftClientOptions client = {}) {
    auto link = std::make_unique<FakeDrafter>(&timer_, kSeed, wrong_every);
    link_ = link.get();
    drafter_ = std::make_unique<RemoteDrafter>(
        RemoteDrafter::Parts{.link = std::move(link), .timer = &timer_, .metrics = &metrics_},
        RemoteDrafterOptions{.client = client, .vocab_size = kFakeVocabulary});
    for (SequenceId id = 0; id < 3; ++id) {
      sequences_[id] = {static_cast<int32_t>(id + 1), 2, 3};
      EXPECT_TRUE(drafter_->Begin(id, sequences_[id]).ok());
    }
  }

  // One step of all sequences. Returns the tokens that were emitted.
  int Step(DraftBudget budget = {.max_nodes = 12, .max_depth = 5, .top_k = 4}) {
    std::vector<DraftRequest> requests;
    std::vector<TokenTree> trees;
    for (const auto& [id, tokens] : sequences_) {
      requests.push_back({.sequence = id, .tokens = tokens, .budget = budget, .seed = kSeed});
      trees.emplace_back(tokens.back());
    }
    drafter_->Propose(requests, trees);
    timer_.Sleep(std::chrono::milliseconds(10));
    int emitted = 0;
    size_t i = 0;
    for (auto& [id, tokens] : sequences_) {
      const TreeLimits limits{.max_nodes = budget.max_nodes,
                              .max_depth = budget.max_depth,
                              .vocab_size = kFakeVocabulary,
                              .max_length = 10000};
      const Status valid = ValidateTree(trees[i], limits);
      EXPECT_TRUE(valid.ok()) << valid.message();
      Tokens kept;
      for (int node = 0; node >= 0;) {
        kept.push_back(FakeNext(tokens, kSeed));
        tokens.push_back(kept.back());
        node = trees[i].FindChild(node, kept.back());
      }
      drafter_->Observe(id, kept);
      emitted += static_cast<int>(kept.size());
      ++i;
    }
    return emitted;
  }

  FakeTimer timer_;
  Metrics metrics_;
  FakeDrafter* link_ = nullptr;
  std::unique_ptr<RemoteDrafter> drafter_;
  std::map<SequenceId, Tokens> sequences_;
};

TEST_F(RemoteDrafterTest, DraftsForAllSequencesAtOnce) {
  Make(/*wrong_every=*/0, {.adaptive = false});
  const auto begin = timer_.Now();
  EXPECT_EQ(Step(), 3 * 6);
  // Three calls take as long as one.
  EXPECT_NEAR(SecondsBetween(begin, timer_.Now()), 0.015, 1e-9);
}

TEST_F(RemoteDrafterTest, CorrectGuessesHideTheDrafting) {
  Make(/*wrong_every=*/0, {.adaptive = false});
  Step();
  const auto begin = timer_.Now();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Step(), 3 * 6);
  EXPECT_NEAR(SecondsBetween(begin, timer_.Now()), 0.1, 1e-9) << "nothing but verification";
  EXPECT_EQ(metrics_.Get(Counter::kRemoteSpeculation, "miss"), 0);
  EXPECT_EQ(metrics_.Get(Counter::kRemoteSpeculation, "hit"), 30);
}

TEST_F(RemoteDrafterTest, EachSequenceHasItsOwnSession) {
  Make(/*wrong_every=*/3);
  for (int i = 0; i < 10; ++i) Step();
  std::set<std::string> sessions;
  std::set<std::string> requests;
  for (const DraftCall& call : link_->calls) {
    sessions.insert(call.session_id);
    EXPECT_TRUE(requests.insert(call.request_id).second) << "ids are used once";
  }
  EXPECT_EQ(sessions.size(), 3u);
}

TEST_F(RemoteDrafterTest, KeepsToTheBudget) {
  Make(/*wrong_every=*/0);
  EXPECT_LE(Step({.max_nodes = 3, .max_depth = 5, .top_k = 4}), 3 * 3);
  EXPECT_LE(Step({.max_nodes = 12, .max_depth = 1, .top_k = 4}), 3 * 2);
  EXPECT_EQ(Step({.max_nodes = 1, .max_depth = 0, .top_k = 1}), 3);
  EXPECT_GT(Step(), 3);
}

TEST_F(RemoteDrafterTest, DecodingIsPlainWhileTheWorkerFails) {
  Make(/*wrong_every=*/0);
  Step();
  for (int i = 0; i < 8; ++i) link_->faults.push_back({Kind::kRefused});
  int plain = 0;
  int steps = 0;
  for (; steps < 200 && !link_->faults.empty(); ++steps) plain += Step() == 3 ? 1 : 0;
  EXPECT_GT(plain, 5) << "nothing is asked of a dead worker step by step";
  for (int i = 0; i < 300; ++i) Step();
  EXPECT_EQ(Step(), 3 * 6) << "it is back";
  EXPECT_GE(metrics_.Get(Counter::kSpecFallback, "draft_worker_down"), 1);
}

TEST_F(RemoteDrafterTest, TokensOutsideOfTheVocabularyAreCut) {
  Make(/*wrong_every=*/0);
  drafter_ = std::make_unique<RemoteDrafter>(
      RemoteDrafter::Parts{.link = std::make_unique<FakeDrafter>(&timer_, kSeed, 0),
                           .timer = &timer_},
      RemoteDrafterOptions{.vocab_size = 2});
  for (const auto& [id, tokens] : sequences_) ASSERT_TRUE(drafter_->Begin(id, tokens).ok());
  const DraftRequest request{.sequence = 0,
                             .tokens = sequences_[0],
                             .budget = {.max_nodes = 12, .max_depth = 5, .top_k = 4}};
  TokenTree tree(sequences_[0].back());
  drafter_->Propose({&request, 1}, {&tree, 1});
  for (const int32_t token : std::span(tree.tokens).subspan(1)) EXPECT_LT(token, 2);
}

TEST_F(RemoteDrafterTest, RewindAndEndLeaveNoState) {
  Make(/*wrong_every=*/0, {.adaptive = false});
  Step();
  sequences_[1].resize(3);
  drafter_->Rewind(1, 3);
  EXPECT_EQ(Step(), 3 * 6) << "a context that was cut is drafted anew";
  drafter_->End(1);
  sequences_.erase(1);
  EXPECT_EQ(Step(), 2 * 6);
  drafter_->Observe(1, Tokens{1, 2});
}

}  // namespace
}  // namespace talon
