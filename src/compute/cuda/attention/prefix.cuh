// The prefix kernel (attention_work.h): blocks take items from a global counter until none is left.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_PREFIX_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_PREFIX_CUH_

#include "base/math.h"
#include "compute/cuda/attention/merge.cuh"
#include "compute/cuda/attention/tile.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Merges a finished chunk into the item's partials. The running totals are the same in all warps
// along N.
template <typename C>
struct TileTotals {
  PartialTotals totals[C::kTilesM][2];

  __device__ __forceinline__ void Add(const AttentionArgs& args, const SharedTile<C>& shared,
                                      const FlashState<C>& state, const ChunkTarget& target) {
    const Lane<C> at;
    const bool first = target.is_first;
#pragma unroll
    for (int i = 0; i < C::kTilesM; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        PartialTotals& total = totals[i][half];
        const MergeFactors factors = total.Add(state.m[i][half], state.l[i][half], first);
        float* to = target.StateOf(args, shared.queries[at.Query(i, half)]);
        if (to == nullptr) continue;
        if (at.n == 0 && at.lane % 4 == 0) *reinterpret_cast<float2*>(to) = {total.m, total.l};
#pragma unroll
        for (int j = 0; j < C::kOwnDimPairs * 2; ++j) {
          const int column = at.Column(j / 2, j % 2);
          if (!at.Owns(j / 2) || column >= args.head_dim) continue;
          const float(&acc)[4] = state.acc[i][j / 2][j % 2];
          MergeColumns(to + kStateHeader + column, {acc[2 * half], acc[2 * half + 1]}, first,
                       factors);
        }
      }
    }
  }
};

// Item `index` of all kv heads' items.
__device__ __forceinline__ AttentionItem ItemAt(const AttentionArgs& args, int index) {
  AttentionItem item = args.plan.items[index / args.kv_heads];
  item.kv_head = index % args.kv_heads;
  return item;
}

// Takes an item: returns its index, or at least num_items if none is left. Run by one thread, once
// for each item, so that the counter wraps around to zero; not at all if every block has one item.
__device__ __forceinline__ int TakeItem(const AttentionArgs& args, int num_items) {
  if (num_items <= static_cast<int>(gridDim.x)) return num_items;
  return gridDim.x + atomicInc(args.counter, static_cast<uint32_t>(num_items) - 1);
}

// `is_first`: the block's first item, which is prepared before PdlWait.
template <typename C>
__device__ __forceinline__ void RunItem(const AttentionArgs& args, const AttentionItem& next,
                                        bool is_first, int num_items, SharedTile<C>& shared) {
  const ItemKeys next_keys(args, next);
  const FirstVectors<C> vectors(next.key_begin / kTileKeys, CeilDiv(next.key_end, kTileKeys),
                                [&](int key) { return next_keys.VectorOf(key); });
  FillSlots<C::kThreads>(args, next, 0, C::kQueries, threadIdx.x, shared.queries);
  vectors.Store(shared);
  if (threadIdx.x == 0) shared.item = next;
  __syncthreads();
  const AttentionItem& item = shared.item;  // leaves the registers to accumulators
  const ItemKeys keys = {args, item, next_keys.blocks};
  const auto vector_of = [&](int key) { return keys.VectorOf(key); };
  const TileRun run = {item.key_begin / kTileKeys, CeilDiv(item.key_end, kTileKeys), item.full_end,
                       item.chunk};
  const int old_tiles = max(run.begin, item.old_end / kTileKeys);
  StartFirstTiles(args, shared, run, run.begin, old_tiles);
  if (is_first) {
    PdlWait();
    PdlTrigger();
  }
  const int next_item = threadIdx.x == 0 ? TakeItem(args, num_items) : 0;
  StartFirstTiles(args, shared, run, old_tiles, INT32_MAX);
  LoadQueries(args, shared);
  if (threadIdx.x == 0) shared.next_item = next_item;  // after other loads have been waited for
  FlashState<C> state;
  TileTotals<C> total;
  state.Clear();
  RunTiles(
      args, shared, run, vector_of,
      [&](int query, int tile) {
        return FirstKeys(shared.queries[query].limit - tile * kTileKeys);
      },
      state,
      [&](int chunk) {
        total.Add(args, shared, state, ChunkTarget(args, item, chunk));
        state.Clear();
      });
}

// The next kernel reads data of kernels before this one ahead of its own PdlWait, so no block calls
// PdlTrigger before its PdlWait has returned.
template <typename C, int MinBlocks>
__global__ void __launch_bounds__(C::kThreads, MinBlocks)
    PrefixKernel(const __grid_constant__ AttentionArgs args) {
  auto& shared = *static_cast<SharedTile<C>*>(DynamicShared());
  const int num_items = *args.plan.num_items;
  if (blockIdx.x >= num_items) {
    PdlWait();
    PdlTrigger();
    return;
  }
  for (int index = blockIdx.x;;) {
    RunItem<C>(args, ItemAt(args, index), index == blockIdx.x, num_items, shared);
    index = shared.next_item;
    if (index >= num_items) break;
    __syncthreads();
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_PREFIX_CUH_
