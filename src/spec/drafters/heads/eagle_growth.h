// How EAGLE3's trees grow: level by level on the host, or ahead of it on the device.
//
// Every sequence has a slot. RankRoots keeps there what a tree grows from, until the slot is ranked
// again: the output of the sequence's last draft row, and that row's best successors.
#ifndef TALON_SPEC_DRAFTERS_HEADS_EAGLE_GROWTH_H_
#define TALON_SPEC_DRAFTERS_HEADS_EAGLE_GROWTH_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/trees/beam_search.h"
#include "kv/kv_cache.h"
#include "model/heads/eagle_head.h"
#include "model/scratch.h"
#include "spec/drafter.h"
#include "spec/drafters/tree_growth.h"
#include "spec/plan.h"

namespace talon {

// Used by the drafter's thread. Trees must have the width of `budget`, at most its depth, and slots
// that are ranked.
class EagleGrowth {
 public:
  struct Parts {  // not owned
    EagleHead* head = nullptr;
    KvCache* kv = nullptr;  // the draft's
    Backend* backend = nullptr;
    MatrixView inputs;  // [rows, H] for the inputs of a level, overwritten by each
  };
  // `budget`: the largest of a tree.
  static Result<std::unique_ptr<EagleGrowth>> Create(const Parts& parts, int slots,
                                                     const DraftBudget& budget);

  // Row i of the output belongs to slots[i].
  void RankRoots(std::span<const int32_t> slots, const EagleOutput& output);
  // Grows trees that have no candidates yet.
  Status Grow(std::span<GrowingTree> growing, const StepPrices& prices);

  // The same trees, on devices that grow them ahead of the host: GrowAhead runs all levels without
  // waiting for one, then FollowDevice gives the trees what was found. Which levels pay is forecast
  // by earlier trees; now and then the levels are waited for, to time them.
  bool grows_ahead() const { return beams_ != nullptr; }
  Status GrowAhead(std::span<GrowingTree> growing, const StepPrices& prices);
  // Writes the trees that GrowAhead was given last into a loaded pass.
  void LoadTrees(std::span<const GrowingTree> growing, std::span<const OutlineRows> outlines,
                 Pass* pass);
  void FollowDevice(std::span<GrowingTree> growing);

 private:
  EagleGrowth(const Parts& parts, int slots, const DraftBudget& budget)
      : parts_(parts),
        budget_(budget),
        roots_(slots),
        level_times_{.clock = &parts.backend->time()},
        forecast_(std::max(budget.max_depth, 1)) {}

  Status RunBeams(std::span<GrowingTree* const> level, std::vector<TopKEntry>* best);
  Status RunAhead(std::span<const GrowingTree> growing, int level);
  // Row of next_ for the output of a tree's node.
  int OutputRow(const GrowingTree& one, int node) const {
    return static_cast<int>(roots_.size()) + one.staging_base + node;
  }
  // Copies the outputs of nodes from `first_node` on to where their children will look for them.
  void KeepOutputs(const GrowingTree& one, int first_node, MatrixView outputs);
  void TopK(const MatrixView& logits, std::vector<TopKEntry>* best);

  Parts parts_;
  DraftBudget budget_;
  std::unique_ptr<BeamSearch> beams_;          // null: the host grows trees level by level
  std::vector<std::vector<TopKEntry>> roots_;  // [slots] best successors, where the host does
  Scratch next_;  // [slots + staged nodes, H] outputs that further rows continue
  PassBuilder builder_;
  LevelTimes level_times_;
  LevelForecast forecast_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_HEADS_EAGLE_GROWTH_H_
