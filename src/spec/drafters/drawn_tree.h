// A tree whose nodes are drawn at random, for rejection acceptance: a node of depth d gets
// max(1, beams - d) children, drawn one after the other without replacement from its 64 most likely
// successors. Each node keeps the distribution it was drawn from, which is exactly what was used.
#ifndef TALON_SPEC_DRAFTERS_DRAWN_TREE_H_
#define TALON_SPEC_DRAFTERS_DRAWN_TREE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "spec/token_tree.h"

namespace talon {

constexpr int kDrawnFrom = 64;  // successors that a token is drawn from

// The distribution over `best` (most likely first) at this temperature.
DraftProbs TemperedProbs(std::span<const TopKEntry> best, float temperature);
// The token at `u` in [0, 1). REQUIRES: not empty.
int32_t DrawFrom(const DraftProbs& probs, double u);

struct DrawnTreeOptions {
  int beams = 1;
  int max_depth = 1;
  int max_nodes = 1;  // root included
  float temperature = 1;
  uint64_t seed = 0;
  uint64_t position = 0;  // position of the first drawn token
};

class DrawnTree {
 public:
  DrawnTree(int32_t root, const DrawnTreeOptions& options) : options_(options), tree_(root) {}

  // Children of the nodes of the last level, from the best successors of each, `ranked` of them.
  // At first: of the root. False if a score is NaN: no tree.
  bool Grow(std::span<const TopKEntry> best, int ranked);
  bool wants_growth() const;
  // Nodes whose successors are wanted: those from this index on.
  int frontier() const { return frontier_; }
  const TokenTree& tree() const { return tree_; }

 private:
  void AddChildren(int node, std::span<const TopKEntry> best);

  DrawnTreeOptions options_;
  TokenTree tree_;
  int frontier_ = 0;
  int depth_ = 0;  // the frontier's
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_DRAWN_TREE_H_
