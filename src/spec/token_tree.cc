#include "spec/token_tree.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "base/check.h"

namespace talon {
namespace {

constexpr int kMaxForestDepth = 64;

// Copies node `from` of `source` as a child of `parent`, with its draw.
int CopyNode(const TokenTree& source, int from, int parent, TokenTree* out) {
  const int added = out->Add(parent, source.tokens[from], source.probs[from]);
  if (!source.draws.empty()) {
    out->draws.resize(out->tokens.size());
    out->draws[added] = source.draws[from];
  }
  return added;
}

}  // namespace

float DraftProbs::Of(int32_t token) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), std::pair{token, -INFINITY});
  return at != entries.end() && at->first == token ? at->second : 0.0f;
}

int TokenTree::Add(int parent, int32_t token, float prob) {
  tokens.push_back(token);
  parents.push_back(parent);
  probs.push_back(prob);
  if (!draws.empty()) draws.emplace_back();
  return size() - 1;
}

int TokenTree::FindChild(int node, int32_t token) const {
  for (int i = node + 1; i < size(); ++i) {
    if (parents[i] == node && tokens[i] == token) return i;
  }
  return -1;
}

void TokenTree::Truncate(int count) {
  if (count >= size()) return;
  tokens.resize(count);
  parents.resize(count);
  probs.resize(count);
  if (!draws.empty()) draws.resize(count);
}

Status ValidateTree(const TokenTree& tree, const TreeLimits& limits) {
  const int nodes = tree.size();
  if (nodes == 0) return InvalidArgument("tree: 0 nodes");
  if (nodes > limits.max_nodes) {
    return InvalidArgument("tree: {} nodes, limit {}", nodes, limits.max_nodes);
  }
  if (tree.parents.size() != tree.tokens.size() || tree.probs.size() != tree.tokens.size() ||
      (!tree.draws.empty() && tree.draws.size() != tree.tokens.size())) {
    return InvalidArgument("tree: {} tokens but {} parents, {} probs, {} draws", nodes,
                           tree.parents.size(), tree.probs.size(), tree.draws.size());
  }
  if (tree.parents[0] != -1) return InvalidArgument("tree: node 0 has parent {}", tree.parents[0]);

  std::vector<int32_t> depth(nodes, 0);
  std::map<std::pair<int32_t, int32_t>, int> seen;  // (parent, token) -> node
  for (int i = 0; i < nodes; ++i) {
    const int parent = tree.parents[i];
    if (i > 0 && parent == -1) return InvalidArgument("tree: node {} is a second root", i);
    if (i > 0 && (parent < 0 || parent >= i)) {
      return InvalidArgument("tree: node {} has parent {}", i, parent);
    }
    if (tree.tokens[i] < 0 || tree.tokens[i] >= limits.vocab_size) {
      return InvalidArgument("tree: node {} token {}, vocabulary {}", i, tree.tokens[i],
                             limits.vocab_size);
    }
    if (i == 0) continue;
    depth[i] = depth[parent] + 1;
    if (depth[i] < depth[i - 1]) {
      return InvalidArgument("tree: node {} (depth {}) after depth {}", i, depth[i], depth[i - 1]);
    }
    const auto [at, added] = seen.emplace(std::pair{parent, tree.tokens[i]}, i);
    if (!added) {
      return InvalidArgument("tree: nodes {} and {} repeat token {} under node {}", at->second, i,
                             tree.tokens[i], parent);
    }
  }
  const int deepest = depth[nodes - 1];
  if (deepest > limits.max_depth) {
    return InvalidArgument("tree: depth {}, limit {}", deepest, limits.max_depth);
  }
  if (limits.committed_len + deepest >= limits.max_length) {
    return InvalidArgument("tree: position {}, limit {}", limits.committed_len + deepest,
                           limits.max_length);
  }
  return OkStatus();
}

std::vector<int32_t> TreeDepths(std::span<const int32_t> parents) {
  std::vector<int32_t> depth(parents.size(), 0);
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] >= 0) depth[i] = depth[parents[i]] + 1;
  }
  return depth;
}

std::vector<uint64_t> AncestorMasks(std::span<const int32_t> parents, int words) {
  const int nodes = static_cast<int>(parents.size());
  TALON_CHECK(words >= MaskWords(nodes), "{} words for {} nodes", words, nodes);
  std::vector<uint64_t> masks(static_cast<size_t>(nodes) * words, 0);
  for (int i = 0; i < nodes; ++i) {
    uint64_t* row = &masks[static_cast<size_t>(i) * words];
    if (parents[i] >= 0) std::copy_n(&masks[static_cast<size_t>(parents[i]) * words], words, row);
    row[i / 64] |= uint64_t{1} << (i % 64);
  }
  return masks;
}

TokenTree CanonicalTree(const TokenTree& tree) {
  const int nodes = tree.size();
  // Merge repeated siblings: owner[i] is the node that stands for i.
  std::vector<int> owner(nodes, 0);
  std::vector<std::vector<int>> children(nodes);
  std::map<std::pair<int, int32_t>, int> seen;
  for (int i = 1; i < nodes; ++i) {
    const int parent = owner[tree.parents[i]];
    const auto [at, added] = seen.emplace(std::pair{parent, tree.tokens[i]}, i);
    owner[i] = at->second;
    if (added) children[parent].push_back(i);
  }
  TokenTree out;
  std::deque<std::pair<int, int>> queue = {{0, -1}};  // (node, new parent)
  while (!queue.empty()) {
    const auto [node, parent] = queue.front();
    queue.pop_front();
    const int added = CopyNode(tree, node, parent, &out);
    for (const int child : children[node]) queue.emplace_back(child, added);
  }
  return out;
}

TokenTree SelectNodes(const TokenTree& tree, const std::vector<bool>& keep) {
  TokenTree out;
  std::vector<int> renamed(tree.tokens.size(), -1);
  for (int i = 0; i < tree.size(); ++i) {
    if (!keep[i]) continue;
    const int parent = i == 0 ? -1 : renamed[tree.parents[i]];
    TALON_CHECK(i == 0 || parent >= 0, "node {} kept without its parent", i);
    renamed[i] = CopyNode(tree, i, parent, &out);
  }
  return out;
}

TokenTree Subtree(const TokenTree& tree, int node) {
  TokenTree out;
  std::vector<int> renamed(tree.tokens.size(), -1);
  renamed[node] = CopyNode(tree, node, -1, &out);
  for (int i = node + 1; i < tree.size(); ++i) {
    const int parent = renamed[tree.parents[i]];
    if (parent >= 0) renamed[i] = CopyNode(tree, i, parent, &out);
  }
  return out;
}

SiblingLists ToSiblingLists(const TokenTree& tree) {
  SiblingLists lists;
  lists.next_token.assign(tree.tokens.size(), -1);
  lists.next_sibling.assign(tree.tokens.size(), -1);
  for (int i = tree.size() - 1; i > 0; --i) {
    const int parent = tree.parents[i];
    lists.next_sibling[i] = lists.next_token[parent];
    lists.next_token[parent] = i;
  }
  return lists;
}

Result<TokenTree> FromSiblingLists(std::span<const int32_t> tokens, const SiblingLists& lists) {
  const int nodes = static_cast<int>(tokens.size());
  if (nodes == 0) return InvalidArgument("tree: 0 nodes");
  if (lists.next_token.size() != tokens.size() || lists.next_sibling.size() != tokens.size()) {
    return InvalidArgument("tree: {} tokens but lists of {} and {}", nodes, lists.next_token.size(),
                           lists.next_sibling.size());
  }
  TokenTree out;
  std::vector<bool> reached(nodes, false);
  std::deque<std::pair<int, int>> queue = {{0, -1}};  // (listed node, new parent)
  while (!queue.empty()) {
    const auto [node, parent] = queue.front();
    queue.pop_front();
    const int added = out.Add(parent, tokens[node], 1.0f);
    for (int child = lists.next_token[node]; child != -1; child = lists.next_sibling[child]) {
      if (child <= 0 || child >= nodes || reached[child]) {
        return InvalidArgument("tree: bad or repeated node {} in the lists", child);
      }
      reached[child] = true;
      queue.emplace_back(child, added);
    }
  }
  if (out.size() != nodes) {
    return InvalidArgument("tree: {} of {} nodes reached from the root", out.size(), nodes);
  }
  return out;
}

std::vector<std::vector<int32_t>> LeafPaths(const TokenTree& tree) {
  std::vector<bool> is_leaf(tree.tokens.size(), true);
  for (int i = 1; i < tree.size(); ++i) is_leaf[tree.parents[i]] = false;
  std::vector<std::vector<int32_t>> paths;
  size_t longest = 0;
  for (int i = 0; i < tree.size(); ++i) {
    if (!is_leaf[i]) continue;
    std::vector<int32_t> path;
    for (int node = i; node >= 0; node = tree.parents[node]) path.push_back(node);
    std::reverse(path.begin(), path.end());
    longest = std::max(longest, path.size());
    paths.push_back(std::move(path));
  }
  for (auto& path : paths) path.resize(longest, -1);
  return paths;
}

std::vector<TokenNode> ToForest(const TokenTree& tree) {
  // Children have higher indices, so building from the end moves finished subtrees upwards.
  std::vector<TokenNode> nodes(tree.tokens.size());
  for (int i = tree.size() - 1; i > 0; --i) {
    nodes[i].token = tree.tokens[i];
    nodes[i].log_prob = std::log(tree.probs[i]);
    std::reverse(nodes[i].children.begin(), nodes[i].children.end());
    nodes[tree.parents[i]].children.push_back(std::move(nodes[i]));
  }
  std::reverse(nodes[0].children.begin(), nodes[0].children.end());
  return std::move(nodes[0].children);
}

Result<TokenTree> FromForest(int32_t root, const std::vector<TokenNode>& forest) {
  struct Pending {
    const TokenNode* node;
    int parent;
    int depth;
  };
  TokenTree tree(root);
  std::deque<Pending> queue;
  for (const TokenNode& node : forest) queue.push_back({&node, 0, 1});
  while (!queue.empty()) {
    const Pending next = queue.front();
    queue.pop_front();
    if (next.depth > kMaxForestDepth) {
      return InvalidArgument("tree: depth {}, limit {}", next.depth, kMaxForestDepth);
    }
    const int added = tree.Add(next.parent, next.node->token, std::exp(next.node->log_prob));
    for (const TokenNode& child : next.node->children) {
      queue.push_back({&child, added, next.depth + 1});
    }
  }
  return tree;
}

}  // namespace talon
