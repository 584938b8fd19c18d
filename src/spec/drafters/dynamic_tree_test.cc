#include "spec/drafters/dynamic_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace talon {
namespace {

std::vector<TopKEntry> Entries(const std::vector<std::pair<int, float>>& values) {
  std::vector<TopKEntry> out;
  for (const auto& [id, log_prob] : values) out.push_back({id, log_prob});
  return out;
}

// The worked example of the semantics: k = 2, steps = 3.
DynamicTree WorkedExample(int nodes) {
  DynamicTree tree(2, 3, nodes);
  EXPECT_TRUE(tree.Start(Entries({{10, -0.5f}, {11, -1.25f}})));
  EXPECT_TRUE(tree.Expand(Entries({{20, -0.25f}, {21, -2}, {22, -0.25f}, {23, -1.5f}})));
  EXPECT_EQ(tree.expanded()[tree.beam()[0]].flat_id, 2);
  EXPECT_EQ(tree.expanded()[tree.beam()[1]].flat_id, 4);
  EXPECT_TRUE(tree.wants_expansion());
  EXPECT_TRUE(tree.Expand(Entries({{30, -0.5f}, {31, -1}, {32, -0.25f}, {33, -2.5f}})));
  EXPECT_FALSE(tree.wants_expansion());
  return tree;
}

TEST(DynamicTree, WorkedExampleOfSixNodes) {
  const TokenTree tree = WorkedExample(6).Build(1);
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{1, 10, 11, 20, 22, 30}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, 0, 1, 2, 3}));
}

TEST(DynamicTree, TiesGoToTheLowerFlatId) {
  const TokenTree tree = WorkedExample(7).Build(1);
  EXPECT_EQ(tree.tokens.back(), 31);  // flat 7 and 8 both score -1.75
}

TEST(DynamicTree, NanGivesNoTree) {
  DynamicTree tree(2, 2, 8);
  EXPECT_FALSE(tree.Start(Entries({{1, NAN}, {2, -1}})));
  DynamicTree later(1, 2, 8);
  ASSERT_TRUE(later.Start(Entries({{1, -1}})));
  EXPECT_FALSE(later.Expand(Entries({{1, NAN}})));
}

TEST(DynamicTree, ImpossibleTokensAreNeverProposed) {
  DynamicTree tree(2, 2, 8);
  ASSERT_TRUE(tree.Start(Entries({{1, 0}, {2, -INFINITY}})));
  EXPECT_EQ(tree.beam().size(), 1u);
  ASSERT_TRUE(tree.Expand(Entries({{3, -1}, {4, -INFINITY}})));
  EXPECT_EQ(tree.Build(0).tokens, (std::vector<int32_t>{0, 1, 3}));
}

TEST(DynamicTree, MinProbCutsUnlikelyPaths) {
  DynamicTree tree(2, 2, 8, 0.2f);
  ASSERT_TRUE(tree.Start(Entries({{1, std::log(0.6f)}, {2, std::log(0.1f)}})));
  ASSERT_TRUE(tree.Expand(Entries(
      {{3, std::log(0.5f)}, {4, std::log(0.3f)}, {5, std::log(0.9f)}, {6, std::log(0.1f)}})));
  EXPECT_EQ(tree.Build(0).tokens, (std::vector<int32_t>{0, 1, 3}));
}

TEST(DynamicTree, RandomTreesAreValid) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int k = 1 + static_cast<int>(random() % 5);
    const int steps = 1 + static_cast<int>(random() % 5);
    const int nodes = 1 + static_cast<int>(random() % 40);
    DynamicTree tree(k, steps, nodes);
    const auto rank = [&](size_t beams) {
      std::vector<TopKEntry> out;
      for (size_t i = 0; i < beams; ++i) {
        float score = 0;
        for (int r = 0; r < k; ++r) {
          score -= static_cast<float>(random() % 4) * 0.5f;
          out.push_back({static_cast<int32_t>(r * 7 + i), score});
        }
      }
      return out;
    };
    ASSERT_TRUE(tree.Start(rank(1)));
    while (tree.wants_expansion()) ASSERT_TRUE(tree.Expand(rank(tree.beam().size())));
    const TokenTree built = tree.Build(3);
    const Status status = ValidateTree(
        built, {.max_nodes = nodes, .max_depth = steps, .vocab_size = 100, .max_length = 100});
    EXPECT_TRUE(status.ok()) << status.message();
    const int candidates = k + (steps - 1) * k * k;
    EXPECT_EQ(built.size(), std::min(nodes, candidates + 1));
  }
}

}  // namespace
}  // namespace talon
