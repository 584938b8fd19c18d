// Beam search by plain loops on the host: the twin that devices are tested against, and how callers
// are tested without a device.
#ifndef TALON_COMPUTE_HOST_HOST_BEAMS_H_
#define TALON_COMPUTE_HOST_HOST_BEAMS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "compute/trees/beam_search.h"

namespace talon {

// The trees themselves; rows of passes are written into plans.
class HostBeams {
 public:
  // Finds the width best of each row of logits (TokenOps::TopK).
  using RankRows = std::function<void(MatrixView logits, int width, std::span<TopKEntry> out)>;
  HostBeams(const BeamLimits& limits, std::span<const int32_t> token_ids, RankRows rank_rows)
      : limits_(limits),
        token_ids_(token_ids.begin(), token_ids.end()),
        rank_rows_(std::move(rank_rows)),
        root_entries_(static_cast<size_t>(limits.trees) * limits.width) {}

  void RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                 MatrixView kept);
  void Start(std::span<const BeamRoot> roots);
  void LoadBeam(MatrixView kept, MatrixView inputs, PassPlan* plan) const;
  void Expand(MatrixView logits, MatrixView outputs, MatrixView kept);
  void LoadTree(const TreePlace& place, PassPlan* plan) const;
  std::span<const TopKEntry> rankings() const { return rankings_; }

 private:
  struct Candidate {
    TopKEntry entry;
    float score = 0;
    int parent = -1;  // a candidate, or -1: the root
    int depth = 1;
  };
  struct Tree {
    BeamRoot root;
    std::vector<Candidate> candidates;      // all levels, in their order
    std::vector<std::vector<int>> beams;    // [levels][width] candidates
    std::vector<std::vector<int>> parents;  // [levels][width] places in the beam before
  };
  void AddLevel(std::span<const TopKEntry> entries, Tree* tree) const;
  int32_t TokenOf(const Candidate& candidate) const { return token_ids_[candidate.entry.id]; }

  BeamLimits limits_;
  std::vector<int32_t> token_ids_;
  RankRows rank_rows_;
  std::vector<TopKEntry> root_entries_;  // [slots][width]
  std::vector<Tree> trees_;
  std::vector<TopKEntry> rankings_;
};

// BeamSearch with the host's trees and passes. REQUIRES: the backend is on the host.
class HostBeamSearch : public BeamSearch {
 public:
  HostBeamSearch(Backend* backend, const BeamLimits& limits, std::span<const int32_t> token_ids);

  void RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                 MatrixView kept) override {
    beams_.RankRoots(slots, logits, outputs, kept);
  }
  void Start(std::span<const BeamRoot> roots) override { beams_.Start(roots); }
  void Load(Pass* pass, MatrixView kept, MatrixView inputs) override;
  void Expand(MatrixView logits, MatrixView outputs, MatrixView kept) override {
    beams_.Expand(logits, outputs, kept);
  }
  void LoadTrees(Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> Read() override { return beams_.rankings(); }

 private:
  Backend* backend_;
  HostBeams beams_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_BEAMS_H_
