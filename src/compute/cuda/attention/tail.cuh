// The tail kernel and the merge kernel (attention_work.h): one block for each row and some query
// heads of a kv head.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_TAIL_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_TAIL_CUH_

#include "base/math.h"
#include "compute/cuda/attention/merge.cuh"
#include "compute/cuda/attention/tile.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// The work of a block of the tail kernel.
struct TailBlock {
  int row_index;
  int kv_head;
  int head_begin;  // query heads
  int head_end;

  __device__ explicit TailBlock(const AttentionArgs& args) : row_index(blockIdx.x) {
    const int parts = CeilDiv(args.group, args.tail_heads);
    kv_head = blockIdx.y / parts;
    const int first = blockIdx.y % parts * args.tail_heads;
    head_begin = kv_head * args.group + first;
    head_end = kv_head * args.group + min(first + args.tail_heads, args.group);
  }
};

// The first key of a row's window.
__device__ __forceinline__ int FirstKey(const AttentionArgs& args, const AttentionRow& row) {
  return args.window > 0 ? max(0, row.num_keys - args.window) : 0;
}

// Lists the vectors of the row's ancestors, in ascending order of nodes.
__device__ __forceinline__ void ListAncestors(const AttentionArgs& args, const TailBlock& block,
                                              int sequence, int32_t* vectors) {
  const int words = args.plan.mask_words;
  const uint64_t* mask = args.plan.ancestors + static_cast<int64_t>(block.row_index) * words;
  for (int node = threadIdx.x; node < words * 64; node += blockDim.x) {
    const uint64_t bits = mask[node / 64];
    if ((bits >> (node % 64) & 1) == 0) continue;
    int rank = __popcll(bits & ((uint64_t{1} << (node % 64)) - 1));
    for (int word = 0; word < node / 64; ++word) rank += __popcll(mask[word]);
    vectors[rank] = args.VectorOf(args.plan.PlaceOf(sequence, node), block.kv_head);
  }
}

template <typename C>
__device__ __forceinline__ void FillTailSlots(const AttentionArgs& args, const TailBlock& block,
                                              const AttentionRow& row, int limit,
                                              SharedTile<C>& shared) {
  if (threadIdx.x >= C::kQueries) return;
  const int head = block.head_begin + threadIdx.x;
  QuerySlot slot = {-1, 0, -1};
  if (head < block.head_end) {
    slot = {block.row_index * args.q_stride + head * args.head_dim, limit,
            row.partial_begin * args.heads() + head};
  }
  shared.queries[threadIdx.x] = slot;
}

// Calls f(j, column) for each pair of columns that a thread holds.
template <typename C, typename F>
__device__ __forceinline__ void ForColumns(const AttentionArgs& args, const Lane<C>& at, F&& f) {
#pragma unroll
  for (int j = 0; j < C::kOwnDimPairs * 2; ++j) {
    const int column = at.Column(j / 2, j % 2);
    if (at.Owns(j / 2) && column < args.head_dim) f(j, column);
  }
}

template <typename C>
__device__ __forceinline__ void LoadState(const AttentionArgs& args, const SharedTile<C>& shared,
                                          int partial, FlashState<C>& state) {
  const Lane<C> at;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int first = shared.queries[at.Query(0, half)].state;
    if (first < 0) continue;
    const float* from = args.State(first + partial * args.heads());
    state.m[0][half] = from[0];
    state.l[0][half] = from[1];
    ForColumns<C>(args, at, [&](int j, int column) {
      const float2 x = *reinterpret_cast<const float2*>(from + kStateHeader + column);
      state.acc[0][j / 2][j % 2][2 * half] = x.x;
      state.acc[0][j / 2][j % 2][2 * half + 1] = x.y;
    });
  }
}

template <typename C>
__device__ __forceinline__ void StoreState(const AttentionArgs& args, const SharedTile<C>& shared,
                                           int partial, const FlashState<C>& state) {
  const Lane<C> at;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int first = shared.queries[at.Query(0, half)].state;
    if (first < 0) continue;
    float* to = args.State(first + partial * args.heads());
    if (at.n == 0 && at.lane % 4 == 0) {
      *reinterpret_cast<float2*>(to) = {state.m[0][half], state.l[0][half]};
    }
    ForColumns<C>(args, at, [&](int j, int column) {
      const float(&acc)[4] = state.acc[0][j / 2][j % 2];
      *reinterpret_cast<float2*>(to + kStateHeader + column) = {acc[2 * half], acc[2 * half + 1]};
    });
  }
}

// Writes the result of the block's heads, `Width` columns a thread.
template <int Width>
__device__ __forceinline__ void MergePartials(const AttentionArgs& args, const TailBlock& block,
                                              const AttentionRow& row) {
  const int columns = args.head_dim / Width;
  for (int i = threadIdx.x; i < (block.head_end - block.head_begin) * columns; i += blockDim.x) {
    const int head = block.head_begin + i / columns;
    const int column = i % columns * Width;
    StoreTotal(args, block.row_index, head, column, MergedPartials<Width>(args, row, head, column));
  }
}

// The same where the block has several threads for every four columns: each merges some of the
// sections, the first one adds them up.
template <int kThreads>
__device__ __forceinline__ void MergePartialsInParallel(const AttentionArgs& args,
                                                        const TailBlock& block,
                                                        const AttentionRow& row, int columns,
                                                        Running<4>* merged) {
  constexpr int kCount = 4;
  const int part = static_cast<int>(threadIdx.x) / columns;
  const int parts = kThreads / columns;
  const int at = threadIdx.x % columns;
  const int quads = args.head_dim / 4;
  const int head = block.head_begin + at / quads;
  const int column = at % quads * 4;
  const int num_sections = NumSections(row.num_keys);
  __syncthreads();  // the shared memory is free
  for (int first = part; part < parts && first < num_sections; first += kCount * parts) {
    Running<4> sections[kCount];
    MergeSections<4>(args, row, head, column, first, parts, sections);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!sections[i].empty) merged[(first + i * parts) * columns + at] = sections[i];
    }
  }
  __syncthreads();
  if (part > 0) return;
  Running<4> total;
  for (int section = 0; section < num_sections; ++section) {
    total.Add(merged[section * columns + at]);
  }
  StoreTotal(args, block.row_index, head, column, total);
}

// `merged`: shared memory for `capacity` of them.
template <int kThreads>
__device__ __forceinline__ void MergeBlock(const AttentionArgs& args, const TailBlock& block,
                                           const AttentionRow& row, Running<4>* merged,
                                           int capacity) {
  const int columns = (block.head_end - block.head_begin) * args.head_dim / 4;  // in fours
  const int num_sections = NumSections(row.num_keys);
  constexpr int kManySections = 3;
  const bool fits = num_sections * columns <= capacity;
  if (columns >= kThreads) {
    MergePartials<4>(args, block, row);
  } else if (2 * columns <= kThreads && num_sections > kManySections && fits) {
    MergePartialsInParallel<kThreads>(args, block, row, columns, merged);
  } else {
    MergePartials<1>(args, block, row);
  }
  if (block.head_end == args.heads()) {
    StorePadding(args.out, block.row_index, threadIdx.x, blockDim.x);
  }
}

// Everything before PdlWait reads the plan, and data of kernels in front of the prefix kernel.
template <typename C>
__device__ __forceinline__ void RunTail(const AttentionArgs& args, const TailBlock& block,
                                        const AttentionRow& row, SharedTile<C>& shared) {
  auto* ancestors = reinterpret_cast<int32_t*>(&shared + 1);
  const int32_t* blocks =
      args.plan.BlocksOf(row.sequence, args.layer, block.kv_head, args.kv_heads);
  const auto vector_of = [&](int key) {
    if (key < row.prefix_len) return args.VectorOfKey(blocks, key, block.kv_head);
    return key < row.num_keys ? ancestors[key - row.prefix_len] : kNoVector;
  };
  const int first = ChunkOf(row.shared_len);
  const TileRun run = {row.shared_len / kTileKeys, CeilDiv(row.num_keys, kTileKeys), row.num_keys,
                       first};
  ListAncestors(args, block, row.sequence, ancestors);
  FillTailSlots(args, block, row, row.num_keys, shared);
  __syncthreads();
  FirstVectors<C>(run.begin, run.end, vector_of).Store(shared);
  __syncthreads();
  StartFirstTiles(args, shared, run, run.begin, INT32_MAX);
  LoadQueries(args, shared);
  FlashState<C> state;
  state.Clear();
  PdlWait();
  if (row.shared_len > ChunkBegin(first)) LoadState(args, shared, row.PartialOf(first), state);
  RunTiles(
      args, shared, run, vector_of,
      [&](int query, int tile) {
        return FirstKeys(shared.queries[query].limit - tile * kTileKeys);
      },
      state,
      [&](int chunk) {
        StoreState(args, shared, row.PartialOf(chunk), state);
        state.Clear();
      });
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads)
    TailKernel(const __grid_constant__ AttentionArgs args) {
  static_assert(C::kWarpsM == 1 && C::kTilesM == 1);
  PdlTrigger();
  const TailBlock block(args);
  const AttentionRow row = args.plan.attention_rows[block.row_index];
  auto& shared = *static_cast<SharedTile<C>*>(DynamicShared());
  if (row.shared_len < row.num_keys) {
    RunTail(args, block, row, shared);
  } else {
    PdlWait();
  }
  MergeBlock<C::kThreads>(args, block, row, reinterpret_cast<Running<4>*>(&shared),
                          sizeof(shared) / sizeof(Running<4>));
}

// The tail kernel of a pass whose rows have no keys of their own.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const __grid_constant__ AttentionArgs args) {
  constexpr int kCapacity = 512;
  __shared__ alignas(Running<4>) uint8_t memory[kCapacity * sizeof(Running<4>)];
  PdlTrigger();
  const TailBlock block(args);
  const AttentionRow row = args.plan.attention_rows[block.row_index];
  PdlWait();
  MergeBlock<kThreads>(args, block, row, reinterpret_cast<Running<4>*>(memory), kCapacity);
}

// The same where all partials are sections, which takes few registers: many rows are merged at
// once.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    MergeSectionsKernel(const __grid_constant__ AttentionArgs args) {
  PdlTrigger();
  const TailBlock block(args);
  const AttentionRow row = args.plan.attention_rows[block.row_index];
  const int columns = args.head_dim / 4;  // in fours
  PdlWait();
  for (int i = threadIdx.x; i < (block.head_end - block.head_begin) * columns; i += kThreads) {
    const int head = block.head_begin + i / columns;
    const int column = i % columns * 4;
    Running<4> total;
#pragma unroll 4
    for (int section = 0; section < NumSections(row.num_keys); ++section) {
      const int index = (row.partial_begin + section) * args.heads() + head;
      total.Add(LoadPartial<4>(args.State(index), column));
    }
    StoreTotal(args, block.row_index, head, column, total);
  }
  if (block.head_end == args.heads()) {
    StorePadding(args.out, block.row_index, threadIdx.x, kThreads);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_TAIL_CUH_
