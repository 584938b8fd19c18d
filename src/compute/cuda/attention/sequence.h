// The two partitionings of a pass's attention (attention_work.h), used by attention/plan.cc.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_
#define TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_

#include <vector>

#include "compute/cuda/attention/plan.h"

namespace talon::cuda {

// Properties that the rows of a sequence share.
struct SequenceWork {
  int row_begin = 0;
  int row_end = 0;
  int prefix_end = 0;   // maximum keys of the block list that any row sees
  int old_end = 0;      // AttentionItem
  int blocks = 0;       // AttentionItem
  int nodes_begin = 0;  // in AttentionPlan::node_places
  int num_nodes = 0;
  bool has_nodes = false;
  // Chunks only: minimum and maximum length of the rows' shared parts, and the number of leading
  // items that are whole sections.
  int min_shared = 0;
  int max_shared = 0;
  int sections = 0;

  int num_keys() const { return prefix_end + num_nodes; }
  int NumTiles(int group, int tile_queries) const {
    return ((row_end - row_begin) * group + tile_queries - 1) / tile_queries;
  }
  // An item with all fields that do not depend on the keys.
  AttentionItem ItemOf(int head, int query, const AttentionShape& shape, int tile_queries) const;
};

// A variant of the prefix kernel.
struct PrefixKind {
  int queries = 0;
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;

  // Keys per step of the kernel.
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
  // Whether two blocks share keys and values, with half of the queries each.
  bool is_pair() const { return queries == 256; }
  // Maximum blocks of a cluster that process different keys.
  int most_runs() const {
    return kernel == PrefixKernelKind::kTiles || is_pair() ? 1 : kMostClusterBlocks;
  }
  int ResidentBlocks(int head_dim) const {  // for each multiprocessor
    return kernel == PrefixKernelKind::kTiles ? PrefixBlocks(PaddedHeadDim(head_dim)) : 1;
  }
  // Whether the last of a query's items merges the partials; with many queries this would take too
  // long.
  bool MergesPartials() const { return queries == 16 || kernel == PrefixKernelKind::kFew; }
};
// The variants that the shape allows, by ascending queries; empty: use the generic kernel.
std::vector<PrefixKind> KindsOf(const AttentionShape& shape);

void AddChunks(const AttentionShape& shape, std::vector<SequenceWork>* works, AttentionPlan* plan);
// Also chooses the tile of queries.
void AddSpans(const std::vector<SequenceWork>& works, const AttentionShape& shape,
              AttentionPlan* plan);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_SEQUENCE_H_
