// The attention work of one pass as plain integers (attention_work.h): made on the host once per
// pass, used by every layer.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_
#define TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/runtime/attention_work.h"
#include "compute/dtype.h"
#include "compute/pass_plan.h"

namespace talon::cuda {

// Clusters of 1, 2, 4 and 8 blocks, one block for each multiprocessor, that a device runs at once.
using ClusterCounts = std::array<int, 4>;

// What the cut depends on besides the pass.
struct AttentionShape {
  int kv_heads = 1;
  int group = 1;  // query heads of a kv head
  int head_dim = 64;
  DType dtype = DType::kBF16;  // of the cache
  int multiprocessors = 1;
  int shared_memory = 227 * 1024;  // bytes that a block may have
  bool deterministic = true;       // chunks, else spans
  bool has_warpgroups = false;     // HasWarpgroupAttention (attention.h)
  // 0: the plan chooses.
  int tile_queries = 0;
  ClusterCounts clusters = {};  // of Hopper's kernels (AttentionClusters in attention.h)
};

// Queries that an item, or the pair of items of two blocks that share keys (256), takes at most:
// 16, 32, 64, 128 or 256, a variant of the prefix kernel. Depends on the pass's shape alone. 0: no
// variant serves this type, head_dim or device, the generic kernel does.
int TileQueries(int rows, int sequences, const AttentionShape& shape);

struct AttentionPlan {
  // Roughly the largest first; behind the first num_items items without work, at least
  // kMaxPrefixBlocks for each multiprocessor in all.
  std::vector<AttentionItem> items;
  std::vector<AttentionRow> rows;    // [rows of the pass]
  std::vector<int32_t> node_places;  // PassPlan::PlaceOf of all nodes of all sequences
  int num_items = 0;
  int num_partials = 0;  // per query head
  int tile_queries = 0;
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;
  int cluster = 1;               // blocks that work together
  bool merges_in_place = false;  // no merge kernel
  bool spans = false;

  // Reuses its memory. Without items and partials where tile_queries is 0.
  void Build(const PassPlan& pass, const AttentionShape& shape);
};

// Device memory that holds `num_partials` partials of every query head, and the kernels' counters.
// Must be zero before its first use.
size_t AttentionScratchBytes(int64_t num_partials, int heads, int head_dim);

// Blocks of the prefix kernel for a multiprocessor, at most.
inline constexpr int kMaxPrefixBlocks = 2;
constexpr int PrefixBlocks(int dim) { return dim <= 128 ? kMaxPrefixBlocks : 1; }

// Shared memory of a variant of the prefix kernel, whose head_dim is padded to `dim`.
constexpr int PaddedHeadDim(int head_dim) {
  if (head_dim <= 64) return 64;
  if (head_dim <= 96) return 96;
  return head_dim <= 128 ? 128 : 256;
}
constexpr int TileStages(int tile_queries, int dim) {
  return tile_queries == 16 && dim <= 128 ? 3 : 2;
}
constexpr int TileSharedBytes(int tile_queries, int dim) {
  const int row_bytes = 2 * (dim + 8);
  const int keys = 2 * TileStages(tile_queries, dim) * kTileKeys * row_bytes;
  const int scores = tile_queries <= 32 ? tile_queries * kTileKeys * 4 : 16;
  const int vectors = 4 * kTileKeys * 4;
  return keys + tile_queries * (row_bytes + 24) + scores + vectors + 96;
}

// The same of FewQueriesKernel: each warp's stages of keys and values, and what goes with them.
inline constexpr int kFewWarps = 8;
inline constexpr int kFewStages = 3;
constexpr int FewSharedBytes(int queries, int dim) {
  const int row_bytes = dim <= 64 ? 128 : 256;
  return kFewWarps * kFewStages * 2 * kBoxKeys * row_bytes +
         queries * (3 * row_bytes + 8 * kFewWarps + 64) + 3072;
}

// The same of WarpgroupKernel: queries, two stages of keys and values, and what goes with them.
constexpr int WarpgroupSharedBytes(int groups, int dim) {
  const int row_bytes = dim <= 64 ? 128 : 256;
  return (64 * groups + 4 * kStepKeys) * row_bytes + 64 * groups * 32 + 8 * kStepKeys + 3072;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_
