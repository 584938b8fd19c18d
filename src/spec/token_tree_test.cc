#include "spec/token_tree.h"

#include <gtest/gtest.h>

#include <random>

namespace talon {
namespace {

TokenTree MakeTree(std::vector<int32_t> tokens, std::vector<int32_t> parents) {
  TokenTree tree;
  for (size_t i = 0; i < tokens.size(); ++i) tree.Add(parents[i], tokens[i], 1.0f);
  return tree;
}

// A random valid tree in canonical form.
TokenTree RandomTree(std::mt19937& random, int max_nodes, int vocabulary) {
  TokenTree tree(static_cast<int32_t>(random() % vocabulary));
  const int nodes = 1 + static_cast<int>(random() % max_nodes);
  while (tree.size() < nodes) {
    tree.Add(static_cast<int>(random() % tree.size()), static_cast<int32_t>(random() % vocabulary),
             0.5f);
  }
  return CanonicalTree(tree);
}

constexpr TreeLimits kLimits{
    .max_nodes = 64, .max_depth = 8, .vocab_size = 1000, .committed_len = 3, .max_length = 100};

TEST(TokenTree, WorkedExample) {
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 2};
  EXPECT_EQ(TreeDepths(parents), (std::vector<int32_t>{0, 1, 1, 2, 2}));
  EXPECT_EQ(AncestorMasks(parents, 1), (std::vector<uint64_t>{0x01, 0x03, 0x05, 0x0b, 0x15}));
  const TokenTree tree = MakeTree({5, 6, 7, 8, 9}, parents);
  const SiblingLists lists = ToSiblingLists(tree);
  EXPECT_EQ(lists.next_token, (std::vector<int32_t>{1, 3, 4, -1, -1}));
  EXPECT_EQ(lists.next_sibling, (std::vector<int32_t>{-1, 2, -1, -1, -1}));
  EXPECT_EQ(LeafPaths(tree), (std::vector<std::vector<int32_t>>{{0, 1, 3}, {0, 2, 4}}));
}

TEST(TokenTree, MasksOfMoreThan64Nodes) {
  std::vector<int32_t> chain(130);
  for (int i = 0; i < 130; ++i) chain[i] = i - 1;
  const std::vector<uint64_t> masks = AncestorMasks(chain, 3);
  EXPECT_EQ(masks[3 * 129], ~uint64_t{0});
  EXPECT_EQ(masks[3 * 129 + 1], ~uint64_t{0});
  EXPECT_EQ(masks[3 * 129 + 2], uint64_t{3});
}

TEST(TokenTree, EveryRuleHasItsMessage) {
  const auto message = [](const TokenTree& tree) { return ValidateTree(tree, kLimits).message(); };
  EXPECT_EQ(message(MakeTree({1, 2, 3}, {-1, 0, 1})), "");
  EXPECT_EQ(message(TokenTree()), "tree: 0 nodes");
  EXPECT_EQ(message(MakeTree({1, 2}, {-1, -1})), "tree: node 1 is a second root");
  EXPECT_EQ(message(MakeTree({1, 2}, {0, 0})), "tree: node 0 has parent 0");
  EXPECT_EQ(message(MakeTree({1, 2, 3}, {-1, 2, 1})), "tree: node 1 has parent 2");
  EXPECT_EQ(message(MakeTree({1, 2}, {-1, -5})), "tree: node 1 has parent -5");
  EXPECT_EQ(message(MakeTree({1, 2, 3, 4}, {-1, 0, 1, 0})), "tree: node 3 (depth 1) after depth 2");
  EXPECT_EQ(message(MakeTree({1, 17, 17}, {-1, 0, 0})),
            "tree: nodes 1 and 2 repeat token 17 under node 0");
  EXPECT_EQ(message(MakeTree({1, 1000}, {-1, 0})), "tree: node 1 token 1000, vocabulary 1000");
  EXPECT_EQ(message(MakeTree({1, -1}, {-1, 0})), "tree: node 1 token -1, vocabulary 1000");
  EXPECT_EQ(message(MakeTree({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8})),
            "tree: depth 9, limit 8");
  TokenTree wide(0);
  for (int i = 1; i < 70; ++i) wide.Add(0, i, 1);
  EXPECT_EQ(message(wide), "tree: 70 nodes, limit 64");
  TreeLimits near_end = kLimits;
  near_end.committed_len = 99;
  EXPECT_EQ(ValidateTree(MakeTree({1, 2}, {-1, 0}), near_end).message(),
            "tree: position 100, limit 100");
  TokenTree short_parents(1);
  short_parents.tokens.push_back(4);
  EXPECT_FALSE(ValidateTree(short_parents, kLimits).ok());
}

TEST(TokenTree, CanonicalMergesRepeatedSiblings) {
  // 0 -> {7 -> 8, 9, 7 -> 10}: the second 7 goes, its child moves under the first.
  const TokenTree tree = CanonicalTree(MakeTree({0, 7, 8, 9, 7, 10}, {-1, 0, 1, 0, 0, 4}));
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{0, 7, 9, 8, 10}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, 0, 1, 1}));
}

TEST(TokenTree, RoundTripsAreExactOnCanonicalTrees) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const TokenTree tree = RandomTree(random, 60, 40);
    ASSERT_TRUE(ValidateTree(tree, {.vocab_size = 40, .max_length = 1000}).ok());
    EXPECT_EQ(CanonicalTree(tree).parents, tree.parents);
    const auto from_lists = FromSiblingLists(tree.tokens, ToSiblingLists(tree));
    ASSERT_TRUE(from_lists.ok());
    EXPECT_EQ(from_lists->tokens, tree.tokens);
    EXPECT_EQ(from_lists->parents, tree.parents);
    const auto from_forest = FromForest(tree.tokens[0], ToForest(tree));
    ASSERT_TRUE(from_forest.ok());
    EXPECT_EQ(from_forest->tokens, tree.tokens);
    EXPECT_EQ(from_forest->parents, tree.parents);
  }
}

TEST(TokenTree, BadListsAndDeepForestsAreRefused) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  EXPECT_FALSE(FromSiblingLists(tokens, {{1, -1, -1}, {-1, 1, -1}}).ok());   // cycle
  EXPECT_FALSE(FromSiblingLists(tokens, {{1, -1, -1}, {-1, -1, -1}}).ok());  // node 2 unreached
  EXPECT_FALSE(FromSiblingLists(tokens, {{9, -1, -1}, {-1, -1, -1}}).ok());
  std::vector<TokenNode> forest(1);
  TokenNode* tip = &forest[0];
  for (int i = 0; i < 70; ++i) {
    tip->children.resize(1);
    tip = &tip->children[0];
  }
  EXPECT_EQ(FromForest(0, forest).status().message(), "tree: depth 65, limit 64");
}

TEST(TokenTree, SubtreeKeepsOrder) {
  const TokenTree tree = MakeTree({0, 1, 2, 3, 4, 5, 6}, {-1, 0, 0, 1, 2, 1, 3});
  const TokenTree sub = Subtree(tree, 1);
  EXPECT_EQ(sub.tokens, (std::vector<int32_t>{1, 3, 5, 6}));
  EXPECT_EQ(sub.parents, (std::vector<int32_t>{-1, 0, 0, 1}));
}

}  // namespace
}  // namespace talon
