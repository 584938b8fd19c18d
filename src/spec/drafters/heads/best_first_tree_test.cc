#include "spec/drafters/heads/best_first_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace talon {
namespace {

std::vector<int32_t> TokensOf(const TokenTree& tree) { return tree.tokens; }

// Grows a tree whose candidates depend on the depth alone.
TokenTree Grow(const std::vector<std::vector<TopKEntry>>& by_depth, BestFirstTree::Limits limits) {
  BestFirstTree tree(100, limits);
  int node = BestFirstTree::kRoot;
  do {
    if (tree.wants_successors(node)) {
      EXPECT_TRUE(tree.AddSuccessors(node, by_depth[tree.depth(node)]));
    }
  } while ((node = tree.Take()) != BestFirstTree::kRoot);
  return tree.Build();
}

TEST(BestFirstTree, TakesTheBestPathsFirst) {
  const std::vector<std::vector<TopKEntry>> by_depth = {{{1, -0.5f}, {2, -1.0f}},
                                                        {{3, -0.25f}, {4, -2.0f}}};
  const TokenTree tree = Grow(by_depth, {.max_nodes = 5, .max_depth = 2});
  // Scores: 1 -0.5, 1-3 -0.75, 2 -1.0, 2-3 -1.25; by depth.
  EXPECT_EQ(TokensOf(tree), (std::vector<int32_t>{100, 1, 2, 3, 3}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, 0, 1, 2}));
  EXPECT_FLOAT_EQ(tree.probs[3], std::exp(-0.25f));
}

TEST(BestFirstTree, EarlierCandidatesWinTies) {
  const std::vector<std::vector<TopKEntry>> by_depth = {{{7, -1.0f}, {3, -1.0f}}};
  EXPECT_EQ(TokensOf(Grow(by_depth, {.max_nodes = 2, .max_depth = 1})),
            (std::vector<int32_t>{100, 7}));
}

TEST(BestFirstTree, LimitsAndImprobablePaths) {
  const float kNever = -std::numeric_limits<float>::infinity();
  const std::vector<std::vector<TopKEntry>> by_depth(
      3, {{1, std::log(0.5f)}, {2, std::log(0.25f)}, {3, kNever}});
  EXPECT_EQ(Grow(by_depth, {.max_nodes = 1, .max_depth = 3}).size(), 1);
  EXPECT_EQ(Grow(by_depth, {.max_nodes = 64, .max_depth = 1}).size(), 3);
  EXPECT_EQ(Grow(by_depth, {.max_nodes = 64, .max_depth = 3}).size(), 1 + 2 + 4 + 8);
  // 1, 2, 1-1, 1-2 (1/8), 2-1 (1/8), 1-1-1 (1/8)
  EXPECT_EQ(Grow(by_depth, {.max_nodes = 64, .max_depth = 3, .min_prob = 0.124f}).size(), 7);
}

TEST(BestFirstTree, NanGivesNoTree) {
  BestFirstTree tree(1, {.max_nodes = 4, .max_depth = 2});
  const TopKEntry bad{.id = 2, .log_prob = std::nanf("")};
  EXPECT_FALSE(tree.AddSuccessors(BestFirstTree::kRoot, {&bad, 1}));
}

// No candidate that was left out is more probable than a node that was taken.
TEST(BestFirstTree, KeepsTheMostProbablePaths) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const int width = 1 + static_cast<int>(random() % 4);
    std::vector<std::vector<TopKEntry>> by_depth(4);
    for (auto& best : by_depth) {
      for (int i = 0; i < width; ++i) {
        best.push_back({i, -static_cast<float>(random() % 1000 + 1) / 100});
      }
      std::ranges::sort(best, [](auto& a, auto& b) { return a.log_prob > b.log_prob; });
    }
    std::vector<float> all;  // scores of all paths
    for (std::vector<float> level = {0}; const auto& best : by_depth) {
      std::vector<float> next;
      for (const float score : level) {
        for (const TopKEntry& entry : best) next.push_back(score + entry.log_prob);
      }
      all.insert(all.end(), next.begin(), next.end());
      level = next;
    }
    std::ranges::sort(all, std::greater<>());
    const int nodes = 2 + static_cast<int>(random() % 20);
    const TokenTree tree = Grow(by_depth, {.max_nodes = nodes, .max_depth = 4});
    std::vector<float> scores = {0};
    for (int i = 1; i < tree.size(); ++i) {
      scores.push_back(scores[tree.parents[i]] + std::log(tree.probs[i]));
    }
    std::sort(scores.begin() + 1, scores.end(), std::greater<>());
    ASSERT_EQ(scores.size() - 1, std::min<size_t>(all.size(), nodes - 1));
    for (size_t i = 1; i < scores.size(); ++i) EXPECT_NEAR(scores[i], all[i - 1], 1e-4);
  }
}

}  // namespace
}  // namespace talon
