// Best-first trees by plain loops on the host: the twin that devices are tested against, and how
// callers are tested without a device.
#ifndef TALON_COMPUTE_HOST_HOST_BEST_FIRST_H_
#define TALON_COMPUTE_HOST_HOST_BEST_FIRST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "compute/trees/best_first_search.h"

namespace talon {

// Grows a tree of `rankings` [depth][width] and writes its rows into a plan.
void PlaceBestFirstTree(std::span<const TopKEntry> rankings, int width,
                        std::span<const int32_t> token_ids, const TreePlace& place, PassPlan* plan);

// REQUIRES: the backend is on the host.
class HostBestFirstSearch : public BestFirstSearch {
 public:
  HostBestFirstSearch(Backend* backend, const BestFirstLimits& limits,
                      std::span<const int32_t> token_ids)
      : backend_(backend),
        limits_(limits),
        token_ids_(token_ids.begin(), token_ids.end()),
        rankings_(static_cast<size_t>(limits.trees) * limits.depth * limits.width) {}

  void Rank(std::span<const BlockRows> blocks, MatrixView logits) override;
  void LoadTrees(Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> Read() override { return rankings_; }

 private:
  std::span<TopKEntry> Of(int tree, int depth) {
    const auto each = static_cast<size_t>(limits_.depth) * limits_.width;
    return std::span(rankings_).subspan(tree * each, static_cast<size_t>(depth) * limits_.width);
  }

  Backend* backend_;
  BestFirstLimits limits_;
  std::vector<int32_t> token_ids_;
  std::vector<TopKEntry> rankings_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_BEST_FIRST_H_
