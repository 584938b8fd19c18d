#include "remote/overlap.h"

#include <gtest/gtest.h>

#include "engine/draft_forest.h"
#include "engine/prefix_hash.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

// 1 - 3 - 5
//   - 4
// 2 - 6 - 7
DraftForest SmallForest() {
  return {.tokens = {1, 2, 3, 4, 6, 5, 7},
          .parents = {-1, -1, 0, 0, 1, 2, 4},
          .probs = {0.5f, 0.4f, 0.5f, 0.2f, 0.9f, 0.5f, 0.9f}};
}

TEST(LongestPath, PrefersLengthThenLikelihoodThenOrder) {
  EXPECT_EQ(LongestPath(SmallForest(), {}), (Tokens{2, 6, 7}));
  DraftForest equal = SmallForest();
  equal.probs.assign(7, 0.5f);
  EXPECT_EQ(LongestPath(equal, {}), (Tokens{1, 3, 5}));
  EXPECT_EQ(LongestPath({}, {}), Tokens{});
}

TEST(LongestPath, NothingFollowsAnEndToken) {
  EXPECT_EQ(LongestPath(SmallForest(), Tokens{6}), (Tokens{1, 3, 5}));
  EXPECT_EQ(LongestPath(SmallForest(), Tokens{6, 3}), (Tokens{2, 6}));
  EXPECT_EQ(LongestPath(SmallForest(), Tokens{1, 2}), (Tokens{1}));
}

TEST(Overlap, MatchedLengthWalksFromTheRoots) {
  EXPECT_EQ(MatchedLength(SmallForest(), Tokens{2, 6, 7}), 3);
  EXPECT_EQ(MatchedLength(SmallForest(), Tokens{1, 3, 9}), 2);
  EXPECT_EQ(MatchedLength(SmallForest(), Tokens{3}), 0);
  EXPECT_EQ(MatchedLength({}, Tokens{3}), 0);
}

TEST(Overlap, BelowIsTheSubtreeOfTheBonus) {
  DraftForest forest = SmallForest();
  forest.draws.resize(7);
  forest.draws[2].entries = {{3, 1.0f}};
  const DraftForest below = Below(forest, 1);
  EXPECT_EQ(below.tokens, (Tokens{3, 4, 5}));
  EXPECT_EQ(below.parents, (Tokens{-1, -1, 0}));
  EXPECT_EQ(below.probs, (std::vector<float>{0.5f, 0.2f, 0.5f}));
  ASSERT_EQ(below.draws.size(), 3u);
  EXPECT_EQ(below.draws[0].Of(3), 1.0f);
  EXPECT_TRUE(Below(forest, 8).empty());
  EXPECT_TRUE(Below({.tokens = {8}, .parents = {-1}, .probs = {1}}, 8).empty());
}

TEST(Overlap, PruneLimitsBranchesDepthNodesAndEnds) {
  const DraftForest chain = Prune(SmallForest(), {.beams = 1, .max_nodes = 10});
  EXPECT_EQ(chain.tokens, (Tokens{1, 3, 5}));
  EXPECT_EQ(chain.parents, (Tokens{-1, 0, 1}));
  EXPECT_EQ(Prune(SmallForest(), {.beams = 2, .max_nodes = 10}).tokens, (Tokens{1, 2, 3, 6, 5, 7}));
  EXPECT_EQ(Prune(SmallForest(), {.max_depth = 1, .max_nodes = 10}).tokens, (Tokens{1, 2}));
  EXPECT_EQ(Prune(SmallForest(), {.max_nodes = 3}).tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(Prune(SmallForest(), {.max_nodes = 10, .end_tokens = Tokens{1}}).tokens,
            (Tokens{1, 2, 6, 7}));
}

TEST(DraftForest, RoundTripsThroughTheTree) {
  DraftForest forest = SmallForest();
  forest.draws.resize(7);
  forest.draws[6].entries = {{7, 1.0f}};
  const TokenTree tree = TreeOfForest(42, forest);
  EXPECT_TRUE(ValidateTree(tree, {.vocab_size = 50, .max_length = 10}).ok());
  EXPECT_EQ(tree.tokens[0], 42);
  const DraftForest back = ForestOfTree(tree);
  EXPECT_EQ(back.tokens, forest.tokens);
  EXPECT_EQ(back.parents, forest.parents);
  EXPECT_EQ(back.probs, forest.probs);
  EXPECT_EQ(back.draws[6].Of(7), 1.0f);
}

// Known answers of FNV-1a over the bytes 61 00 00 00, and over nothing.
TEST(PrefixHash, IsFnv1aOverLittleEndianIds) {
  EXPECT_EQ(PrefixHash({}), 0xcbf29ce484222325u);
  uint64_t expected = 0xcbf29ce484222325u;
  for (const uint8_t byte : {0x61, 0x00, 0x00, 0x00, 0x04, 0x03, 0x02, 0x01}) {
    expected = (expected ^ byte) * 0x100000001b3u;
  }
  EXPECT_EQ(PrefixHash(Tokens{0x61, 0x01020304}), expected);
}

}  // namespace
}  // namespace talon
