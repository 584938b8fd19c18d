#include "spec/drafters/drawn_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace talon {
namespace {

std::vector<TopKEntry> Successors(const std::vector<float>& probs) {
  std::vector<TopKEntry> best;
  for (size_t i = 0; i < probs.size(); ++i) {
    best.push_back({.id = static_cast<int32_t>(i), .log_prob = std::log(probs[i])});
  }
  return best;
}

// The same successors for each of `nodes` nodes.
std::vector<TopKEntry> Repeat(const std::vector<TopKEntry>& row, int nodes) {
  std::vector<TopKEntry> all;
  for (int i = 0; i < nodes; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

TokenTree GrowWhole(const DrawnTreeOptions& options, const std::vector<TopKEntry>& row) {
  DrawnTree drawn(99, options);
  while (drawn.wants_growth()) {
    const int nodes = drawn.tree().size() - drawn.frontier();
    EXPECT_TRUE(drawn.Grow(Repeat(row, nodes), static_cast<int>(row.size())));
  }
  return drawn.tree();
}

TEST(DrawnTree, BranchesShrinkWithTheDepth) {
  const auto row = Successors({0.4f, 0.3f, 0.2f, 0.1f});
  const TokenTree tree = GrowWhole({.beams = 3, .max_depth = 4, .max_nodes = 100}, row);
  std::map<int, int> width;
  for (const int depth : TreeDepths(tree.parents)) ++width[depth];
  EXPECT_EQ(width, (std::map<int, int>{{0, 1}, {1, 3}, {2, 6}, {3, 6}, {4, 6}}));
  EXPECT_TRUE(ValidateTree(tree, {.max_nodes = 100, .vocab_size = 100, .max_length = 10}).ok());
}

TEST(DrawnTree, LimitsHold) {
  const auto row = Successors({0.4f, 0.3f, 0.2f, 0.1f});
  EXPECT_EQ(GrowWhole({.beams = 3, .max_depth = 4, .max_nodes = 7}, row).size(), 7);
  EXPECT_EQ(GrowWhole({.beams = 1, .max_depth = 4, .max_nodes = 7}, row).size(), 5);
  // More children than there are tokens.
  EXPECT_EQ(GrowWhole({.beams = 9, .max_depth = 1, .max_nodes = 50}, row).size(), 5);
}

TEST(DrawnTree, EachNodeWasDrawnFromWhatItCarries) {
  const auto row = Successors({0.4f, 0.3f, 0.2f, 0.1f});
  const TokenTree tree =
      GrowWhole({.beams = 3, .max_depth = 2, .max_nodes = 50, .temperature = 0.7f, .seed = 3}, row);
  for (int node = 1; node < tree.size(); ++node) {
    double sum = 0;
    for (const auto& [token, probability] : tree.draws[node].entries) sum += probability;
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_GT(tree.draws[node].Of(tree.tokens[node]), 0);
    for (int earlier = 1; earlier < node; ++earlier) {
      if (tree.parents[earlier] != tree.parents[node]) continue;
      EXPECT_EQ(tree.draws[node].Of(tree.tokens[earlier]), 0) << "drawn with replacement";
    }
  }
}

TEST(DrawnTree, FirstDrawsFollowTheDistribution) {
  const auto row = Successors({0.6f, 0.3f, 0.1f});
  std::vector<int> count(3, 0);
  constexpr int kDraws = 20000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const TokenTree tree = GrowWhole({.max_depth = 1, .max_nodes = 2, .seed = seed}, row);
    ++count[tree.tokens[1]];
  }
  EXPECT_NEAR(count[0], 0.6 * kDraws, 350);
  EXPECT_NEAR(count[1], 0.3 * kDraws, 350);
  EXPECT_NEAR(count[2], 0.1 * kDraws, 220);
}

TEST(DrawnTree, SameSeedSameTree) {
  const auto row = Successors({0.3f, 0.3f, 0.2f, 0.2f});
  const DrawnTreeOptions options{.beams = 3, .max_depth = 4, .max_nodes = 50, .seed = 11};
  EXPECT_EQ(GrowWhole(options, row).tokens, GrowWhole(options, row).tokens);
}

TEST(DrawnTree, NanGivesNoTree) {
  DrawnTree drawn(1, {.max_depth = 2, .max_nodes = 4});
  const std::vector<TopKEntry> row = {
      {.id = 0, .log_prob = std::numeric_limits<float>::quiet_NaN()}};
  EXPECT_FALSE(drawn.Grow(row, 1));
}

}  // namespace
}  // namespace talon
