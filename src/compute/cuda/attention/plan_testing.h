// Helpers for tests of attention plans.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_PLAN_TESTING_H_
#define TALON_COMPUTE_CUDA_ATTENTION_PLAN_TESTING_H_

#include <tuple>
#include <vector>

#include "base/math.h"
#include "compute/cuda/attention/plan.h"

namespace talon::cuda::testing {

inline void EndSequence(int keys, PassPlan* plan) {
  plan->sequence_rows.push_back(plan->num_rows());
  plan->block_ids.resize(plan->block_ids.size() + CeilDiv(keys, 16));
  plan->block_offsets.push_back(static_cast<int32_t>(plan->block_ids.size()));
}

inline void BeginSequence(PassPlan* plan) {
  if (!plan->sequence_rows.empty()) return;
  plan->sequence_rows.push_back(0);
  plan->block_offsets.push_back(0);
}

// Adds a sequence of `nodes` chained tree rows over `committed` tokens.
inline void AddChain(int committed, int nodes, PassPlan* plan) {
  BeginSequence(plan);
  for (int i = 0; i < nodes; ++i) {
    plan->tokens.push_back(0);
    plan->slots.push_back(-1);
    plan->prefix_len.push_back(committed);
    plan->ancestors.push_back((uint64_t{2} << i) - 1);
  }
  EndSequence(committed, plan);
}

// Adds the last `rows` of `tokens` prompt tokens.
inline void AddPrompt(int tokens, int rows, PassPlan* plan) {
  BeginSequence(plan);
  for (int i = 0; i < rows; ++i) {
    plan->tokens.push_back(0);
    plan->slots.push_back(i);
    plan->prefix_len.push_back(tokens - rows + i + 1);
    plan->ancestors.push_back(0);
  }
  EndSequence(tokens, plan);
}

inline PassPlan MixedPass() {
  PassPlan pass;
  AddChain(20000, 9, &pass);
  AddPrompt(700, 130, &pass);
  AddChain(30, 2, &pass);  // less than one tile
  AddChain(1024, 1, &pass);
  AddPrompt(5000, 40, &pass);
  AddPrompt(3, 3, &pass);
  AddChain(64, 5, &pass);
  return pass;
}

// The items of each kv head, as the kernels see them.
inline std::vector<AttentionItem> ItemsOf(const AttentionPlan& plan) {
  if (plan.items.empty()) return {};
  const int heads = plan.num_items / static_cast<int>(plan.items.size());
  std::vector<AttentionItem> items;
  for (const AttentionItem& item : plan.items) {
    for (int head = 0; head < heads; ++head) {
      items.push_back(item);
      if (plan.kernel == PrefixKernelKind::kTiles) items.back().kv_head = head;
    }
  }
  return items;
}

inline std::vector<AttentionShape> Shapes() {
  std::vector<AttentionShape> shapes;
  for (const int group : {1, 4, 20}) {
    for (const int tile : {16, 32, 64, 128, 256}) {
      for (const int multiprocessors : {1, 10000}) {  // few long items, or many
        for (const bool has_warpgroups : {false, true}) {
          if (tile == 256 && !has_warpgroups) continue;
          shapes.push_back({.kv_heads = 2,
                            .group = group,
                            .head_dim = 128,
                            .multiprocessors = multiprocessors,
                            .has_warpgroups = has_warpgroups,
                            .tile_queries = tile});
        }
      }
    }
  }
  return shapes;
}

// A key of a sequence, as a row's query head sees it.
using Seen = std::tuple<int, int, int, int>;  // row, kv head, head of the group, tile or key

}  // namespace talon::cuda::testing

#endif  // TALON_COMPUTE_CUDA_ATTENTION_PLAN_TESTING_H_
