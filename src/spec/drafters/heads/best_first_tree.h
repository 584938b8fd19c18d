// A draft tree that grows node by node, the most probable candidate first.
//
// A candidate's score is the sum of the log-probabilities on its path. Of equal scores the
// candidate that was added earlier is better.
#ifndef TALON_SPEC_DRAFTERS_HEADS_BEST_FIRST_TREE_H_
#define TALON_SPEC_DRAFTERS_HEADS_BEST_FIRST_TREE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/token_ops.h"
#include "spec/token_tree.h"

namespace talon {

class BestFirstTree {
 public:
  static constexpr int kRoot = 0;
  struct Limits {
    int max_nodes = 1;  // root included
    int max_depth = 0;
    float min_prob = 0;  // least probability of a path
  };
  BestFirstTree(int32_t root, const Limits& limits);

  const Limits& limits() const { return limits_; }
  float min_score() const { return min_score_; }
  int depth(int node) const { return nodes_[node].depth; }
  int32_t token(int node) const { return nodes_[node].token; }
  // Whether the node may have children.
  bool wants_successors(int node) const { return depth(node) < limits_.max_depth && !full(); }
  // The best successors of a node of the tree. False if a log-probability is NaN: no tree.
  bool AddSuccessors(int node, std::span<const TopKEntry> best);
  // Makes the best candidate a node and returns it; kRoot if there is none or no room.
  int Take();

  // The nodes by depth, those of a depth as they were taken. probs are the conditional
  // probabilities.
  TokenTree Build() const;
  // As many nodes as a tree with `width` candidates for each can have, each as deep as it can be.
  TokenTree Outline(int width) const;

 private:
  struct Node {
    int32_t token = 0;
    int parent = -1;
    int depth = 0;
    float log_prob = 0;  // given the parent
    float score = 0;
  };
  struct Candidate {
    Node node;
    int order = 0;  // order of its addition
  };
  bool full() const { return static_cast<int>(nodes_.size()) >= limits_.max_nodes; }
  static bool IsWorse(const Candidate& a, const Candidate& b);

  Limits limits_;
  float min_score_;
  int added_ = 0;
  std::vector<Node> nodes_;            // as taken, the root first
  std::vector<Candidate> candidates_;  // a heap, the best first
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_HEADS_BEST_FIRST_TREE_H_
