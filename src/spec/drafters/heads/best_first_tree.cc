#include "spec/drafters/heads/best_first_tree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace talon {

BestFirstTree::BestFirstTree(int32_t root, const Limits& limits)
    : limits_(limits),
      min_score_(limits.min_prob > 0 ? std::log(limits.min_prob)
                                     : std::numeric_limits<float>::lowest()),
      nodes_{{.token = root}} {}

bool BestFirstTree::IsWorse(const Candidate& a, const Candidate& b) {
  return a.node.score != b.node.score ? a.node.score < b.node.score : a.order > b.order;
}

bool BestFirstTree::AddSuccessors(int node, std::span<const TopKEntry> best) {
  const Node parent = nodes_[node];
  for (const TopKEntry& entry : best) {
    if (std::isnan(entry.log_prob)) return false;
    const float score = parent.score + entry.log_prob;
    if (score < min_score_) continue;  // -inf is below every limit
    candidates_.push_back({{.token = entry.id,
                            .parent = node,
                            .depth = parent.depth + 1,
                            .log_prob = entry.log_prob,
                            .score = score},
                           added_++});
    std::ranges::push_heap(candidates_, IsWorse);
  }
  return true;
}

int BestFirstTree::Take() {
  if (candidates_.empty() || full()) return kRoot;
  std::ranges::pop_heap(candidates_, IsWorse);
  nodes_.push_back(candidates_.back().node);
  candidates_.pop_back();
  return static_cast<int>(nodes_.size()) - 1;
}

TokenTree BestFirstTree::Build() const {
  std::vector<int> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [this](int node) { return depth(node); });
  TokenTree tree(nodes_[kRoot].token);
  std::vector<int> place(nodes_.size(), 0);
  for (const int node : std::span(order).subspan(1)) {
    const Node& one = nodes_[node];
    place[node] = tree.Add(place[one.parent], one.token, std::exp(one.log_prob));
  }
  return tree;
}

TokenTree BestFirstTree::Outline(int width) const {
  int64_t most = 1;
  int64_t level = 1;
  for (int depth = 0; depth < limits_.max_depth && most < limits_.max_nodes; ++depth) {
    most += level *= width;
  }
  TokenTree tree(nodes_[kRoot].token);
  for (int i = 1; i < std::min<int64_t>(most, limits_.max_nodes); ++i) {
    tree.Add(std::min(i, limits_.max_depth) - 1, nodes_[kRoot].token, 1);
  }
  return tree;
}

}  // namespace talon
