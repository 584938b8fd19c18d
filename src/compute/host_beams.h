// Draft trees that grow as on a device (Backend::NewBeamSearch), by plain loops on the host: the
// twin that devices are tested against, and how the code above is tested without one.
#ifndef TALON_COMPUTE_HOST_BEAMS_H_
#define TALON_COMPUTE_HOST_BEAMS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/pass_plan.h"

namespace talon {

class HostBeamSearch : public BeamSearch {
 public:
  // The width best of each row of logits (Backend::TopK).
  using RankRows = std::function<void(MatrixView logits, int width, std::span<TopKEntry> out)>;
  HostBeamSearch(const BeamLimits& limits, std::span<const int32_t> token_ids, RankRows rank_rows)
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
    std::vector<Candidate> candidates;      // of all levels, in their order
    std::vector<std::vector<int>> beams;    // of each level: candidates
    std::vector<std::vector<int>> parents;  // and their places in the beam before
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

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_BEAMS_H_
