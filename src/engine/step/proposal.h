// The tree that a pass verifies for one sequence: drafts below the sequence's root and, where a
// full pass follows partial ones (SpecPV), the provisional tokens as a trunk above that root.
//
// Three numberings of nodes meet here and nowhere else: of the pass's tree (the trunk first), of
// the tree that is judged (all of it, or only the drafts), and of the drafts.
#ifndef TALON_ENGINE_STEP_PROPOSAL_H_
#define TALON_ENGINE_STEP_PROPOSAL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "spec/token_tree.h"

namespace talon {

class Proposal {
 public:
  explicit Proposal(int32_t root) : drafts_(root) {}

  // ---- Drafts ----

  const TokenTree& drafts() const { return drafts_; }
  int num_drafts() const { return drafts_.size() - 1; }
  // Replaces the drafts; a trunk stays above them.
  void SetDrafts(TokenTree drafts);
  // Leaves the root only. REQUIRES: no trunk.
  void DropDrafts();
  // Chunked verification: keeps the first `nodes` nodes, if there are more and no trunk.
  void CutTo(int nodes);
  // The drafts before CutTo shortened them, else an empty tree.
  const TokenTree& uncut() const { return uncut_; }

  // ---- Trunk ----

  // The provisional tokens: their last one is followed by the drafts' root. `judged`: the pass
  // decides about them again; else it only computes their K/V.
  void AddTrunk(std::span<const int32_t> tokens, bool judged);
  int trunk_len() const { return static_cast<int>(trunk_.size()); }
  bool has_trunk() const { return !trunk_.empty(); }
  // Provisional tokens that the pass decides about again.
  int num_rejudged() const { return judges_trunk_ ? trunk_len() : 0; }

  // ---- The pass's tree ----

  const TokenTree& tree() const { return has_trunk() ? with_trunk_ : drafts_; }
  int draft_root() const { return trunk_len(); }  // the node that is the drafts' root
  // The first node whose logits are needed.
  int first_judged() const { return judges_trunk_ ? 0 : trunk_len(); }
  // The row of the drafts' root in a pass where the tree's rows begin at `first`.
  int RootRow(int first) const { return first + draft_root(); }
  // Nodes of its longest path, which a pass may commit.
  int LongestPath() const;

  // ---- Acceptance ----

  // Those of the sequence's tokens that are above the judged tree, its root included.
  std::span<const int32_t> Base(std::span<const int32_t> tokens) const {
    return tokens.first(tokens.size() - num_rejudged());
  }
  // The subtree of tree() at first_judged(), numbered from 0.
  const TokenTree& judged() const { return first_judged() == 0 ? tree() : drafts_; }
  // An accepted path of judged() as nodes of tree(); a trunk that is not judged is part of it.
  std::vector<int32_t> PathInTree(std::span<const int32_t> judged_path) const;
  // An accepted path of tree() as nodes of drafts(); empty if it ends in the trunk.
  std::vector<int32_t> PathInDrafts(std::span<const int32_t> tree_path) const;
  // Provisional tokens that an accepted path of tree() confirms.
  int NumConfirmed(std::span<const int32_t> tree_path) const;
  // Nodes of an accepted path of tree() whose first `emitted` choices were emitted.
  size_t NodesBefore(size_t emitted) const { return first_judged() + emitted; }

 private:
  void BuildTree();

  TokenTree drafts_;
  TokenTree uncut_;
  std::vector<int32_t> trunk_;
  bool judges_trunk_ = false;
  TokenTree with_trunk_;  // trunk and drafts, where there is a trunk
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PROPOSAL_H_
