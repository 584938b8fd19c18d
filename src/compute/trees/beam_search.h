// Draft trees that grow on the device, ahead of the host.
//
// A tree grows by levels. The candidates of level 1 are the `width` best successors of the root,
// those of each further level the `width` best successors of every node in the beam before. A
// candidate's score is the sum of the log-probabilities on its path; the `width` best candidates of
// a level (ties to the earlier one) are its beam, whose nodes are run. Rows of a beam are ordered
// tree by tree, best first.
//
// Order of calls: RankRoots; Start; Load, the pass, Expand for every level; LoadTrees; Read.
#ifndef TALON_COMPUTE_TREES_BEAM_SEARCH_H_
#define TALON_COMPUTE_TREES_BEAM_SEARCH_H_

#include <cstdint>
#include <span>

#include "compute/matrix.h"
#include "compute/token_ops.h"
#include "compute/trees/tree_place.h"

namespace talon {

class Pass;

struct BeamLimits {
  int trees = 0;  // also the number of slots, in which roots are ranked
  int width = 0;
  int levels = 0;
};

struct BeamRoot {
  int slot = 0;       // its successors are the first beam; the row of the outputs they continue
  int first_row = 0;  // the row where the output of the tree's node 0 will be
};

class BeamSearch {
 public:
  virtual ~BeamSearch() = default;

  // Ranks the successors of roots by the rows of `logits`, each in its slot, and keeps the rows of
  // `outputs` as rows `slots` of `kept`. Holds until the slot is ranked again.
  virtual void RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                         MatrixView kept) = 0;
  virtual void Start(std::span<const BeamRoot> roots) = 0;
  // Writes the beam's tokens and masks into a loaded pass of as many rows, and the outputs that its
  // nodes continue to `inputs`.
  virtual void Load(Pass* pass, MatrixView kept, MatrixView inputs) = 0;
  // Ranks the logits of the beam's rows and keeps their outputs; the next level's beam replaces it.
  virtual void Expand(MatrixView logits, MatrixView outputs, MatrixView kept) = 0;
  // Writes the best-scored candidates of each tree, in the order in which they were found, into a
  // loaded pass: tokens, positions and masks of the drafts' rows. Rows that a tree cannot fill
  // repeat its root as the root's child.
  virtual void LoadTrees(Pass* pass, std::span<const TreePlace> places) = 0;
  // All rankings since Start, as indices into the token ids: [trees][width] of the roots, then
  // [levels][trees][width][width]. Waits for what was queued up to LoadTrees, not for the pass.
  virtual std::span<const TopKEntry> Read() = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_TREES_BEAM_SEARCH_H_
