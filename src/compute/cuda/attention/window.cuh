// The window kernel: attention of layers with a sliding window, one block for each row and some
// query heads of a kv head. Tiles are counted from the first key of the row's window, so the row
// alone decides the order of its sums.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WINDOW_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WINDOW_CUH_

#include "base/math.h"
#include "compute/cuda/attention/softmax.cuh"
#include "compute/cuda/attention/tail.cuh"
#include "compute/cuda/attention/tile.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Writes the result of the block's heads.
template <typename C>
__device__ __forceinline__ void StoreWindow(const AttentionArgs& args, const TailBlock& block,
                                            const FlashState<C>& state) {
  const Lane<C> at;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = block.head_begin + at.Query(0, half);
    if (head >= block.head_end) continue;
    const float factor = InverseTotal(args.sinks, head, state.m[0][half], state.l[0][half]);
    ForColumns<C>(args, at, [&](int j, int column) {
      const float(&acc)[4] = state.acc[0][j / 2][j % 2];
      StoreResult<2>(args.out, block.row_index, head * args.head_dim + column,
                     {__fmul_rn(acc[2 * half], factor), __fmul_rn(acc[2 * half + 1], factor)});
    });
  }
  if (block.head_end == args.heads()) {
    StorePadding(args.out, block.row_index, threadIdx.x, C::kThreads);
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads)
    WindowKernel(const __grid_constant__ AttentionArgs args) {
  static_assert(C::kWarpsM == 1 && C::kTilesM == 1);
  auto& shared = *static_cast<SharedTile<C>*>(DynamicShared());
  auto* ancestors = reinterpret_cast<int32_t*>(&shared + 1);
  PdlTrigger();
  const TailBlock block(args);
  const AttentionRow row = args.plan.attention_rows[block.row_index];
  const int32_t* blocks =
      args.plan.BlocksOf(row.sequence, args.layer, block.kv_head, args.kv_heads);
  const int first = FirstKey(args, row);
  const int count = row.num_keys - first;
  const auto vector_of = [&](int i) {
    if (i >= count) return kNoVector;
    const int key = first + i;
    if (key < row.prefix_len) return args.VectorOfKey(blocks, key, block.kv_head);
    return ancestors[key - row.prefix_len];
  };
  const TileRun run = {0, CeilDiv(count, kTileKeys), count, 0};
  ListAncestors(args, block, row.sequence, ancestors);
  FillTailSlots(args, block, row, count, shared);
  __syncthreads();
  FirstVectors<C>(run.begin, run.end, vector_of).Store(shared);
  __syncthreads();
  PdlWait();
  StartFirstTiles(args, shared, run, run.begin, INT32_MAX);
  LoadQueries(args, shared);
  FlashState<C> state;
  state.Clear();
  RunTiles(
      args, shared, run, vector_of,
      [&](int query, int tile) {
        return FirstKeys(shared.queries[query].limit - tile * kTileKeys);
      },
      state, [](int) {});
  StoreWindow<C>(args, block, state);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WINDOW_CUH_
