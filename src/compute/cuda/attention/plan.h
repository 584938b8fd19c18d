// The attention work of one pass as plain integers (attention_work.h): built on the host once per
// pass, used by every layer.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_
#define TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/runtime/attention_work.h"
#include "compute/dtype.h"
#include "compute/pass_plan.h"

namespace talon::cuda {

// Inputs of the partitioning besides the pass.
struct AttentionShape {
  int kv_heads = 1;
  int group = 1;  // query heads of a kv head
  int head_dim = 64;
  DType dtype = DType::kBF16;  // type of the cache
  int multiprocessors = 1;
  int shared_memory = 227 * 1024;  // bytes that a block may have
  bool has_warpgroups = false;     // HasWarpgroupAttention (attention.h)
  int tile_queries = 0;            // if there is such a variant; else the plan chooses
};

struct AttentionPlan {
  std::vector<AttentionItem> items;  // roughly the largest first
  std::vector<AttentionRow> rows;    // [rows of the pass]
  std::vector<int32_t> node_places;  // PassPlan::PlaceOf of all nodes of all sequences
  int num_items = 0;                 // those of each kv head counted
  int num_partials = 0;              // per query head
  // Maximum queries of an item, or of the pair of items of two blocks that share keys (256): a
  // variant of the prefix kernel. 0: the generic kernel runs, because no variant supports this
  // type, head_dim or device.
  int tile_queries = 0;
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;
  bool has_tails = false;      // rows have keys of their own, so that the tail kernel must run
  bool only_sections = false;  // every partial is a section

  // Reuses its memory. Makes no items and partials if tile_queries is 0.
  void Build(const PassPlan& pass, const AttentionShape& shape);
};

// Bytes of device memory for `num_partials` partials of every query head and the kernel's counter.
// The memory must be zero before its first use.
size_t AttentionScratchBytes(int64_t num_partials, int heads, int head_dim);

// Blocks of PrefixKernel per SM, whose head_dim is padded to `dim`: as many as registers and shared
// memory allow.
constexpr int PrefixBlocks(int tile_queries, int dim) {
  if (dim > 128) return 1;
  return tile_queries == 16 ? 3 : 2;
}

// Shared memory of a variant of the prefix kernel, whose head_dim is padded to `dim`.
constexpr int PaddedHeadDim(int head_dim) {
  if (head_dim <= 64) return 64;
  if (head_dim <= 96) return 96;
  return head_dim <= 128 ? 128 : 256;
}
// Elements from one row of a tile to the next: padded, if dim is not a power of two (TileConfig).
constexpr int TileStride(int dim) { return (dim & (dim - 1)) == 0 ? dim : dim + 8; }
inline constexpr int kTileStages = 2;
constexpr int TileSharedBytes(int tile_queries, int dim) {
  const int row_bytes = 2 * TileStride(dim);
  const int keys = 2 * kTileStages * kTileKeys * row_bytes;
  const int scores = tile_queries <= 32 ? tile_queries * kTileKeys * 4 : 16;
  const int vectors = 4 * kTileKeys * 4;
  const int scales = 2 * kTileKeys;
  return keys + tile_queries * (row_bytes + 24) + scores + vectors + scales + 96;
}

// Shared memory of WarpgroupKernel: queries, stages of keys and values, slots, mbarriers and kept
// accumulators.
constexpr int WarpgroupSharedBytes(int groups, int dim) {
  const int row_bytes = dim <= 64 ? 128 : 256;
  return (64 * groups + 2 * WarpgroupStages(groups) * kStepKeys) * row_bytes + 64 * groups * 16 +
         8 * kStepKeys + KeptBytes(groups, dim) + 2048;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_PLAN_H_
