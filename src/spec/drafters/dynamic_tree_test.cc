#include "spec/drafters/dynamic_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/host/host_beams.h"

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

// A tree of three nodes cannot have a third level, however many are allowed.
TEST(DynamicTree, GrowsNoDeeperThanItsNodes) {
  DynamicTree tree(2, 5, 3);
  EXPECT_EQ(tree.steps(), 2);
  ASSERT_TRUE(tree.Start(Entries({{10, -0.5f}, {11, -1.25f}})));
  EXPECT_TRUE(tree.wants_expansion());
  ASSERT_TRUE(tree.Expand(Entries({{20, -0.25f}, {21, -2}, {22, -0.25f}, {23, -1.5f}})));
  EXPECT_FALSE(tree.wants_expansion());
  EXPECT_EQ(tree.Build(1).tokens, (std::vector<int32_t>{1, 10, 20}));
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

// What devices build, by the loops they are tested against: the same nodes in the same order.
TEST(DynamicTree, DevicesBuildTheSameTrees) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const int k = 1 + static_cast<int>(random() % 5);
    const int steps = 1 + static_cast<int>(random() % 5);
    const int nodes = 1 + static_cast<int>(random() % 40);
    const float min_prob = round % 3 == 0 ? 0.02f : 0.0f;
    std::vector<TopKEntry> ranked;
    const auto rank = [&](MatrixView, int, std::span<TopKEntry> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        const bool first = i % static_cast<size_t>(k) == 0;
        const float drop = static_cast<float>(random() % 4) * 0.5f;
        const bool impossible = random() % 16 == 0;
        out[i] = {static_cast<int32_t>(i), (first ? 0 : out[i - 1].log_prob) - drop};
        if (impossible) out[i].log_prob = -INFINITY;
      }
      ranked.assign(out.begin(), out.end());
    };
    std::vector<int32_t> numbered(64);
    for (size_t i = 0; i < numbered.size(); ++i) numbered[i] = static_cast<int32_t>(i);
    HostBeams device({.trees = 1, .width = k, .levels = steps}, numbered, rank);
    DynamicTree tree(k, steps, nodes, min_prob);
    std::vector<float> row(1);
    std::vector<float> kept(static_cast<size_t>(1 + k * steps));
    const MatrixView outputs{row.data(), 1, 1, 0};
    const MatrixView keep{kept.data(), 1 + k * steps, 1, 1};
    device.RankRoots(std::vector<int32_t>{0}, {.rows = 1}, outputs, keep);
    device.Start(std::vector<BeamRoot>{{.slot = 0, .first_row = 1}});
    ASSERT_TRUE(tree.Start(ranked));
    for (int level = 1; level < steps; ++level) {
      device.Expand({.rows = k}, outputs, keep);
      if (!tree.wants_expansion()) continue;
      ASSERT_TRUE(tree.Expand(std::span(ranked).first(tree.beam().size() * k)));
    }
    const TokenTree built = tree.Build(3);
    PassPlan plan;
    plan.tokens.assign(nodes, 3);
    plan.positions.assign(nodes, 50);
    plan.ancestors.assign(nodes, 1);
    device.LoadTree(
        {.levels = steps, .nodes = nodes, .position = 50, .min_score = tree.min_score()}, &plan);
    ASSERT_LE(built.size(), nodes);
    const std::vector<uint64_t> masks = AncestorMasks(built.parents, 1);
    const std::vector<int32_t> depths = TreeDepths(built.parents);
    for (int i = 0; i < built.size(); ++i) {
      EXPECT_EQ(plan.tokens[i], built.tokens[i]);
      EXPECT_EQ(plan.ancestors[i], masks[i]);
      EXPECT_EQ(plan.positions[i], 50 + depths[i]);
    }
    for (int i = built.size(); i < nodes; ++i) {
      EXPECT_EQ(plan.tokens[i], 3);
      EXPECT_EQ(plan.ancestors[i], 1 | uint64_t{1} << i);
    }
    const TokenTree outline = DynamicTree(k, steps, nodes).Outline(3);
    const std::vector<int32_t> deepest = TreeDepths(outline.parents);
    ASSERT_GE(outline.size(), built.size());
    for (int i = 0; i < built.size(); ++i) EXPECT_GE(deepest[i], depths[i]);
  }
}

}  // namespace
}  // namespace talon
