// Drafters with heads of every kind alone, on features of the tests' own making.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "engine/heads/test_drafters.h"
#include "engine/test_engine.h"
#include "model/test_model.h"

namespace talon {
namespace {

class HeadsAlone : public testing::TestWithParam<const char*> {
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

}  // namespace
}  // namespace talon
