#include "compute/host/host_best_first.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "compute/host/host_pass.h"

namespace talon {
namespace {

struct TreeNode {
  int parent = -1;
  int depth = 0;
  int32_t token = 0;
  float score = 0;
  int next_rank = 0;  // rank of the first child that was not taken
};

// The nodes as they are taken, the root first.
std::vector<TreeNode> GrowBestFirst(std::span<const TopKEntry> rankings, int width,
                                    std::span<const int32_t> token_ids, const TreePlace& place) {
  std::vector<TreeNode> nodes(1);
  while (static_cast<int>(nodes.size()) < place.nodes) {
    int best = -1;
    float best_score = 0;
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      const TreeNode& node = nodes[i];
      if (node.depth == place.levels || node.next_rank == width) continue;
      const float score = node.score + rankings[node.depth * width + node.next_rank].log_prob;
      const bool possible = score > -INFINITY && score >= place.min_score;  // not so: NaN
      if (!possible || (best >= 0 && score <= best_score)) continue;
      best = i;
      best_score = score;
    }
    if (best < 0) break;
    const int rank = nodes[best].next_rank++;
    const int depth = nodes[best].depth;
    nodes.push_back({.parent = best,
                     .depth = depth + 1,
                     .token = token_ids[rankings[depth * width + rank].id],
                     .score = best_score});
  }
  return nodes;
}

void AddToMask(int bit, uint64_t* mask) { mask[bit / 64] |= uint64_t{1} << (bit % 64); }

}  // namespace

void PlaceBestFirstTree(std::span<const TopKEntry> rankings, int width,
                        std::span<const int32_t> token_ids, const TreePlace& place,
                        PassPlan* plan) {
  const std::vector<TreeNode> nodes = GrowBestFirst(rankings, width, token_ids, place);
  std::vector<int> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int node) { return nodes[node].depth; });
  std::vector<int> row_of(nodes.size());
  for (int i = 0; i < static_cast<int>(order.size()); ++i) row_of[order[i]] = i;
  for (int i = 1; i < place.nodes; ++i) {
    const int row = place.root_row + i;
    const int node = i < static_cast<int>(order.size()) ? order[i] : -1;
    plan->tokens[row] = node < 0 ? plan->tokens[place.root_row] : nodes[node].token;
    plan->positions[row] = place.position + (node < 0 ? 1 : nodes[node].depth);
    uint64_t* mask = plan->ancestors.data() + static_cast<size_t>(row) * plan->mask_words;
    std::fill_n(mask, plan->mask_words, 0);
    for (int bit = 0; bit <= place.above; ++bit) AddToMask(bit, mask);
    AddToMask(place.above + i, mask);
    for (int at = node; at > 0; at = nodes[at].parent) AddToMask(place.above + row_of[at], mask);
  }
}

void HostBestFirstSearch::Rank(std::span<const BlockRows> blocks, MatrixView logits) {
  for (const BlockRows& block : blocks) {
    TALON_CHECK(block.tree < limits_.trees && block.depth <= limits_.depth);
    backend_->token_ops()->TopK(logits.Rows(block.first, block.depth), limits_.width,
                                Of(block.tree, block.depth));
  }
}

void HostBestFirstSearch::LoadTrees(Pass* pass, std::span<const TreePlace> places) {
  const auto& loaded = static_cast<const HostPass&>(*pass);
  PassPlan plan = loaded.plan;
  for (const TreePlace& place : places) {
    PlaceBestFirstTree(Of(place.tree, place.levels), limits_.width, token_ids_, place, &plan);
  }
  backend_->LoadPass(plan, KvShape(loaded.shape), pass);
}

}  // namespace talon
