// A tree of proposed tokens, and its forms elsewhere.
//
// Two flat arrays: tokens[i] and parents[i]. Node 0 is the root: the last emitted token, whose K/V
// is not yet committed. Depths never decrease with the index, so parents come before children and
// every prefix of the arrays is a tree. Children of a node stand in drafter preference order;
// ascending index is the sibling order everywhere (masks, acceptance, wire).
#ifndef TALON_SPEC_TOKEN_TREE_H_
#define TALON_SPEC_TOKEN_TREE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/math.h"
#include "base/status.h"

namespace talon {

// The distribution a drafted token was drawn from, for rejection acceptance. Sparse, sums to 1.
struct DraftProbs {
  std::vector<std::pair<int32_t, float>> entries;  // (token, probability), ascending token
  bool empty() const { return entries.empty(); }
  float Of(int32_t token) const;
};

struct TokenTree {
  std::vector<int32_t> tokens;   // [T]
  std::vector<int32_t> parents;  // [T], -1 for the root
  // [T] the drafter's estimate of P(node | parent accepted), 1 for the root.
  std::vector<float> probs;
  std::vector<DraftProbs> draws;  // [T], or empty when nothing was drawn at random

  TokenTree() = default;
  explicit TokenTree(int32_t root) : tokens{root}, parents{-1}, probs{1.0f} {}

  int size() const { return static_cast<int>(tokens.size()); }
  // Appends a child and returns its index. The order rule is the caller's: see CanonicalTree.
  int Add(int parent, int32_t token, float prob);
  // The child of `node` that carries `token`, or -1.
  int FindChild(int node, int32_t token) const;
  // Drops the nodes from `count` on. REQUIRES: count >= 1.
  void Truncate(int count);
};

struct TreeLimits {
  int max_nodes = 64;
  int max_depth = 64;
  int vocab_size = 0;
  int committed_len = 0;  // C
  int max_length = 0;     // positions must stay below it
};

// The rules of a valid tree; InvalidArgument with a message that names the node.
Status ValidateTree(const TokenTree& tree, const TreeLimits& limits);

// REQUIRES for all below: parents[i] < i. A parent of -1 is a root; these two take forests as well.
std::vector<int32_t> TreeDepths(std::span<const int32_t> parents);
// [T][words] bit j of row i: i may attend to node j, that is j is an ancestor of i or i itself.
std::vector<uint64_t> AncestorMasks(std::span<const int32_t> parents, int words);
inline int MaskWords(int nodes) { return CeilDiv(nodes, 64); }

// True breadth-first form of any tree with parents before children: by depth, then by the parent's
// new index, then by input order. Repeated siblings merge into the first, children included.
TokenTree CanonicalTree(const TokenTree& tree);

// The tree of the kept nodes, order unchanged. REQUIRES: the root is kept, and each kept node's
// parent.
TokenTree SelectNodes(const TokenTree& tree, const std::vector<bool>& keep);

// The subtree of `node` as a tree of its own, `node` being its root.
TokenTree Subtree(const TokenTree& tree, int node);

// Forms of other engines (semantics in README.md of this folder).
struct SiblingLists {                 // SGLang
  std::vector<int32_t> next_token;    // [T] lowest-index child or -1
  std::vector<int32_t> next_sibling;  // [T] next higher sibling or -1
};
SiblingLists ToSiblingLists(const TokenTree& tree);
Result<TokenTree> FromSiblingLists(std::span<const int32_t> tokens, const SiblingLists& lists);

// EAGLE's retrieve_indices: one row per leaf, node indices from root to leaf, padded with -1.
std::vector<std::vector<int32_t>> LeafPaths(const TokenTree& tree);

// SpecSplit's forest: our tree without its root, recursive. Depth limit 64.
struct TokenNode {
  int32_t token = 0;
  float log_prob = 0;
  std::vector<TokenNode> children;
};
std::vector<TokenNode> ToForest(const TokenTree& tree);
Result<TokenTree> FromForest(int32_t root, const std::vector<TokenNode>& forest);

}  // namespace talon

#endif  // TALON_SPEC_TOKEN_TREE_H_
