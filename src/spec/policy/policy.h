// How much to speculate: decided before each step from what earlier steps cost and gained.
// Mechanism is elsewhere; a policy only picks numbers. Used by the engine's thread only.
#ifndef TALON_SPEC_POLICY_POLICY_H_
#define TALON_SPEC_POLICY_POLICY_H_

#include <cstdint>
#include <span>

#include "spec/drafter.h"
#include "spec/token_tree.h"

namespace talon {

// The batch of a step, as far as its cost depends on it.
struct StepShape {
  int sequences = 1;     // decoding
  int context = 0;       // mean length of what their passes read
  bool partial = false;  // most of them read a partial view (SpecPV)
};

struct StepCost {
  int rows = 0;  // tree rows of all sequences
  int emitted = 0;
  bool drafted = false;       // the drafter was asked
  bool ahead = false;         // drafting was not waited for: its time is in that of the pass
  bool lookups_only = false;  // only what costs next to nothing was asked
  double draft_seconds = 0;
  double total_seconds = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;

  // A step begins: what is decided for it holds for all its sequences.
  virtual void BeginStep(const StepShape& shape) = 0;

  // What the drafter may propose for one sequence in the coming step, within `limit`.
  virtual DraftBudget Budget(const StepShape& shape, const DraftBudget& limit) = 0;

  // Whether the drafter should be told of the rows that the coming step commits. One that has not
  // followed the target for a while drafts from what it knows before and after.
  virtual bool Follows() const { return true; }

  // Whether sources that cost next to nothing may propose in the coming step although the budget
  // asks for nothing.
  virtual bool AllowsLookups() const { return false; }

  // How many nodes the trees of the coming step should have, at most `most`, where they are
  // verified before the host knows them, so that none can be trimmed.
  virtual int NodesAhead(const StepShape& shape, int most) = 0;
  // Drops the nodes that are not worth verifying. The tree stays valid.
  virtual void Trim(const StepShape& shape, TokenTree* tree) = 0;

  // The same for a full pass that judges `trunk` provisional tokens before the tree (SpecPV):
  // drops the drafts that are not worth a row of it.
  virtual void TrimSettling(const StepShape& shape, int trunk, TokenTree* tree) = 0;

  // What a pass with `rows` rows of each sequence takes by the verify curve; 0: not known.
  virtual double PassSeconds(const StepShape& shape, double rows) const = 0;

  // A verified tree and its accepted nodes, the root first. `ahead`: NodesAhead chose its size.
  virtual void ObserveTree(const TokenTree& tree, std::span<const int32_t> path, bool ahead) = 0;

  virtual void ObserveStep(const StepShape& shape, const StepCost& cost) = 0;

  // Time that speculation took in other ways (a drafter that caught up, a choice of blocks), for
  // tokens that so many plain steps of the batch would have given.
  virtual void Charge(const StepShape& shape, double seconds, double plain_steps) {}
  // Plain steps' time that speculation has lost so far, beyond what it may lose in the long run.
  virtual double StepsLost(const StepShape& shape) const { return 0; }
};

// Always the whole limit, nothing trimmed.
class FixedPolicy : public Policy {
 public:
  void BeginStep(const StepShape&) override {}
  DraftBudget Budget(const StepShape&, const DraftBudget& limit) override { return limit; }
  int NodesAhead(const StepShape&, int most) override { return most; }
  void Trim(const StepShape&, TokenTree*) override {}
  void TrimSettling(const StepShape&, int, TokenTree*) override {}
  double PassSeconds(const StepShape&, double) const override { return 0; }
  void ObserveTree(const TokenTree&, std::span<const int32_t>, bool) override {}
  void ObserveStep(const StepShape&, const StepCost&) override {}
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_POLICY_H_
