// The dynamic tree of EAGLE-2/3, for any drafter that can rank next tokens: `steps` levels, the
// best `k` nodes of each level expanded, the best `nodes` - 1 of all candidates kept.
//
// Candidates have flat ids in the order they arise: level 1 has 0..k-1, level j >= 2 has
// k + (j-2)*k*k + slot*k + rank, where slot is the parent's place in the beam. Every selection
// takes the higher score first, then the lower flat id. Scores never rise from parent to child and
// a parent's id is lower, so a kept node's parent is always kept.
#ifndef TALON_SPEC_DRAFTERS_DYNAMIC_TREE_H_
#define TALON_SPEC_DRAFTERS_DYNAMIC_TREE_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "spec/token_tree.h"

namespace talon {

class DynamicTree {
 public:
  // A node whose successors are wanted. `parent` is an index into expanded(), -1 for the root.
  struct Expanded {
    int32_t token = 0;
    int parent = -1;
    int depth = 1;
    int flat_id = 0;
  };

  DynamicTree(int top_k, int steps, int max_nodes, float min_prob = 0);

  // At most so many levels. REQUIRES: not started.
  void LimitSteps(int steps) { steps_ = std::min(steps_, steps); }

  // Level 1: the k best successors of the root, best first. False if a score is NaN: no tree.
  bool Start(std::span<const TopKEntry> best);

  // Whether another level is wanted: then the nodes of beam() must be run.
  bool wants_expansion() const { return level_ < steps_ && !beam_.empty(); }
  // The nodes to run now, indices into expanded(): those of all earlier levels come before them.
  std::span<const int> beam() const { return beam_; }
  const std::vector<Expanded>& expanded() const { return expanded_; }
  // Expected number of beam nodes on the target's path, by the draft's own probabilities.
  double beam_mass() const { return beam_mass_; }
  int top_k() const { return top_k_; }
  int steps() const { return steps_; }
  float min_score() const { return min_score_; }
  // The k best successors of each node of the beam, in its order. False on NaN.
  bool Expand(std::span<const TopKEntry> best);

  // The best max_nodes - 1 candidates under `root`. probs are the conditional probabilities.
  TokenTree Build(int32_t root) const;

  // Before anything is ranked: as many nodes as Build() can give, each as deep as it can be.
  TokenTree Outline(int32_t root) const;

 private:
  struct Candidate {
    int32_t token = 0;
    float score = 0;       // sum of log-probs from the root
    float log_prob = 0;    // conditional
    int parent_flat = -1;  // -1: the root
    int flat_id = 0;
  };
  bool AddCandidate(const TopKEntry& entry, float parent_score, int parent_flat, int flat_id);
  void ChooseBeam(size_t first);

  int top_k_;
  int steps_;
  int max_nodes_;
  float min_score_;
  int level_ = 0;
  std::vector<Candidate> candidates_;  // ascending flat id
  std::vector<Expanded> expanded_;
  std::vector<int> beam_;
  double beam_mass_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_DYNAMIC_TREE_H_
