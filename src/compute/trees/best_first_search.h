// Draft trees of block heads, grown on the device ahead of the host.
//
// A block head ranks the tokens of all depths in one pass, so the candidates of a depth are the
// same for every path. A tree grows node by node: the candidate with the largest sum of
// log-probabilities on its path is taken, of equal ones the one whose parent was taken first, then
// the one of the better rank. In the pass that verifies it, nodes are ordered by depth, those of a
// depth as they were taken.
//
// Order of calls: Rank, for all blocks; LoadTrees; Read.
#ifndef TALON_COMPUTE_TREES_BEST_FIRST_SEARCH_H_
#define TALON_COMPUTE_TREES_BEST_FIRST_SEARCH_H_

#include <span>

#include "compute/matrix.h"
#include "compute/token_ops.h"
#include "compute/trees/tree_place.h"

namespace talon {

class Pass;

struct BestFirstLimits {
  int trees = 0;
  int nodes = 0;  // a tree has at most, root included
  int depth = 0;
  int width = 0;  // candidates of a depth
};

// The logits that rank the candidates of a tree: a row for each depth.
struct BlockRows {
  int tree = 0;
  int first = 0;
  int depth = 0;  // number of rows
};

class BestFirstSearch {
 public:
  virtual ~BestFirstSearch() = default;

  virtual void Rank(std::span<const BlockRows> blocks, MatrixView logits) = 0;
  // Grows each tree within its place and writes its nodes into a loaded pass: tokens, positions and
  // masks of the drafts' rows. Rows that a tree cannot fill repeat its root as the root's child.
  virtual void LoadTrees(Pass* pass, std::span<const TreePlace> places) = 0;
  // The rankings, as indices into the token ids: [trees][depth][width] of the limits. Waits for
  // what was queued up to LoadTrees, not for the pass.
  virtual std::span<const TopKEntry> Read() = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_TREES_BEST_FIRST_SEARCH_H_
