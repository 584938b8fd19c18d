// The two ways to cut a pass's attention (attention_work.h). For attention_plan.cc.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_
#define TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_

#include <vector>

#include "compute/cuda/attention/plan.h"

namespace talon::cuda {

// What a sequence's rows have in common.
struct SequenceWork {
  int row_begin = 0;
  int row_end = 0;
  int prefix_end = 0;   // keys that the row with the most sees of the block list
  int old_end = 0;      // AttentionItem
  int blocks = 0;       // AttentionItem
  int nodes_begin = 0;  // in AttentionPlan::node_places
  int num_nodes = 0;
  bool has_nodes = false;
  // Of chunks: what the rows' shared parts are at least and at most, and how many leading items are
  // whole sections.
  int min_shared = 0;
  int max_shared = 0;
  int sections = 0;

  int num_keys() const { return prefix_end + num_nodes; }
  int NumTiles(int group, int tile_queries) const {
    return ((row_end - row_begin) * group + tile_queries - 1) / tile_queries;
  }
  // With everything that does not depend on the keys.
  AttentionItem ItemOf(int head, int query, const AttentionShape& shape, int tile_queries) const;
};

// A variant of the prefix kernel.
struct PrefixKind {
  int queries = 0;
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;

  // Keys that the kernel takes at once.
  int unit() const {
    switch (kernel) {
      case PrefixKernelKind::kTiles:
        return kTileKeys;
      case PrefixKernelKind::kFew:
        return kBoxKeys;
      default:
        return kStepKeys;
    }
  }
  // Two blocks that share keys and values, with half of the queries each.
  bool is_pair() const { return queries == 256; }
  // Blocks of a cluster that have different keys, at most.
  int most_runs() const {
    return kernel == PrefixKernelKind::kTiles || is_pair() ? 1 : kMostClusterBlocks;
  }
  int ResidentBlocks(int head_dim) const {  // for each multiprocessor
    return kernel == PrefixKernelKind::kTiles ? PrefixBlocks(PaddedHeadDim(head_dim)) : 1;
  }
  // Whether the last of a query's items merges partials: with many queries it would take too long.
  bool MergesPartials() const { return queries == 16 || kernel == PrefixKernelKind::kFew; }
};
// Those that the shape allows, by ascending queries; none: the generic kernel's.
std::vector<PrefixKind> KindsOf(const AttentionShape& shape);

void AddChunks(const AttentionShape& shape, std::vector<SequenceWork>* works, AttentionPlan* plan);
// Chooses the tile of queries too.
void AddSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              AttentionPlan* plan);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_
