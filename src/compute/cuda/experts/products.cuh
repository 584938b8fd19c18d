// The products of expert tiles (experts.h). An item is a tile of pairs and kItemOutputs rows of its
// expert's matrix; the block's warps take a quarter of the inputs each, whose accumulators are
// added in order. Weights go from global memory to registers and are the left operand of mma.sync,
// the pairs are its columns, so that a pair's sums do not depend on the others in its tile.
#ifndef TALON_COMPUTE_CUDA_EXPERTS_PRODUCTS_CUH_
#define TALON_COMPUTE_CUDA_EXPERTS_PRODUCTS_CUH_

#include <algorithm>

#include "base/math.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/mma.cuh"
#include "compute/cuda/experts/work.h"

namespace talon::cuda {

inline constexpr int kExpertThreads = 32 * kExpertWarps;

template <int Pairs>
struct ProductShared {
  float partials[kExpertWarps][kItemOutputs][Pairs + 1];  // a warp's share of the inputs each
  float bias[kItemOutputs];
  int32_t slots[Pairs];  // down only
  float weights[Pairs];  // down only
};

// A tile of pairs and some rows of its expert's matrix.
struct ProductItem {
  ExpertTile tile;
  ExpertMatrix matrix;
  int first;         // first output
  int row_begin[2];  // first matrix row of each half

  template <bool Gated>
  static __device__ __forceinline__ ProductItem Of(const ExpertProduct& args, int index) {
    ProductItem item;
    const int blocks = CeilDiv(args.outputs, Gated ? kItemOutputs / 2 : kItemOutputs);
    const ExpertTile* tile = args.routes.tiles + index / blocks;
    item.tile = {__ldcg(&tile->expert), __ldcg(&tile->begin), __ldcg(&tile->count)};
    const ExpertEntry& entry = args.table[item.tile.expert];
    item.matrix = Gated ? entry.gate_up : entry.down;
    const int block = index % blocks;
    item.first = block * (Gated ? kItemOutputs / 2 : kItemOutputs);
    const bool halves = Gated && args.gate_limit <= 0;  // all gates come before all ups
    item.row_begin[0] = halves ? item.first : block * kItemOutputs;
    item.row_begin[1] = halves ? args.outputs + item.first : item.row_begin[0] + kItemOutputs / 2;
    return item;
  }
};

// The row of x that belongs to column `pair` of the item, or null.
template <bool Gated, typename T>
__device__ __forceinline__ const T* InputOf(const ExpertProduct& args, const ProductItem& item,
                                            int pair) {
  if (pair >= item.tile.count) return nullptr;
  const int index = item.tile.begin + pair;
  const int row = Gated ? __ldcg(args.routes.pairs + index) / args.per_row : index;
  return static_cast<const T*>(args.x) + row * args.x_stride;
}

// The quarter of the inputs, in chunks, that a warp takes.
struct ChunkRange {
  int begin;
  int end;
  __device__ ChunkRange(const ExpertProduct& args, int warp) {
    const int chunks = static_cast<int>(args.x_stride / kChunkInputs);
    begin = chunks * warp / kExpertWarps;
    end = chunks * (warp + 1) / kExpertWarps;
  }
};

// The accumulators of a warp: both halves of the item's rows, 8 pairs each.
template <int Pairs>
using Accumulators = float[2][Pairs / 8][4];

// to += a piece of the chunk times its inputs. A lane's piece is 8 inputs of rows lane / 4 and
// lane / 4 + 8 of a half: two steps of mma.m16n8k16.
template <typename Format, int Pairs>
__device__ __forceinline__ void MultiplyPiece(const typename Format::Chunk (&chunk)[2],
                                              const typename Format::T* const (&inputs)[Pairs / 8],
                                              int index, int piece, Accumulators<Pairs>& to) {
  using T = typename Format::T;
  uint32_t a[2][2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) chunk[half].Expand(piece, a[half]);
  const int column = index * kChunkInputs + Format::InputOffset(piece, 0);
#pragma unroll
  for (int n = 0; n < Pairs / 8; ++n) {
    uint4 x = {0, 0, 0, 0};
    if (inputs[n] != nullptr) x = *reinterpret_cast<const uint4*>(inputs[n] + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Mma<T>(to[half][n], a[half][0], x.x, x.y);
      Mma<T>(to[half][n], a[half][1], x.z, x.w);
    }
  }
}

// Pieces that share a scale are summed before they are scaled.
template <typename Format, int Pairs>
__device__ __forceinline__ void AddChunk(const typename Format::Chunk (&chunk)[2],
                                         const typename Format::T* const (&inputs)[Pairs / 8],
                                         int index, Accumulators<Pairs>& accumulators) {
  constexpr int kPieces = 4;
  if constexpr (Format::kScales == 0) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      MultiplyPiece<Format, Pairs>(chunk, inputs, index, piece, accumulators);
    }
  } else {
#pragma unroll
    for (int piece = 0; piece < kPieces;) {
      Accumulators<Pairs> part = {};
      const int scale = piece * Format::kScales / kPieces;
#pragma unroll
      for (int i = 0; i < kPieces / Format::kScales; ++i, ++piece) {
        MultiplyPiece<Format, Pairs>(chunk, inputs, index, piece, part);
      }
#pragma unroll
      for (int i = 0; i < Pairs; ++i) {
        const int half = i / (Pairs / 2), n = i / 4 % (Pairs / 8);
        float& sum = accumulators[half][n][i % 4];
        sum = __fmaf_rn(part[half][n][i % 4], chunk[half].Scale(scale, i % 4 / 2), sum);
      }
    }
  }
}

// The warp's accumulators of an item. `begin` is called when the first weights are on their way,
// and before x is read.
template <typename Format, int Pairs, bool Gated, typename Begin>
__device__ __forceinline__ void AccumulateItem(const ExpertProduct& args, const ProductItem& item,
                                               const Begin& begin,
                                               Accumulators<Pairs>& accumulators) {
  using T = typename Format::T;
  constexpr int kAhead = Format::kAhead;
  const ChunkRange range(args, threadIdx.x / 32);
  const typename Format::Rows rows[2] = {{args, item.matrix, item.row_begin[0]},
                                         {args, item.matrix, item.row_begin[1]}};
  typename Format::Chunk ring[kAhead][2];
  const auto load = [&](int chunk, typename Format::Chunk(&to)[2]) {
    if (chunk >= range.end) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) to[half].Load(rows[half], chunk);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(range.begin + i, ring[i]);
  begin();
  const T* inputs[Pairs / 8];
#pragma unroll
  for (int n = 0; n < Pairs / 8; ++n) {
    inputs[n] = InputOf<Gated, T>(args, item, 8 * n + threadIdx.x % 32 / 4);
    if (inputs[n] != nullptr) inputs[n] += Format::InputOffset(0, threadIdx.x % 4);
  }
  for (int chunk = range.begin; chunk < range.end; chunk += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (chunk + i >= range.end) break;
      AddChunk<Format, Pairs>(ring[i], inputs, chunk + i, accumulators);
      load(chunk + i + kAhead, ring[i]);
    }
  }
}

// Stores the warp's accumulators in shared memory.
template <int Pairs>
__device__ __forceinline__ void ShareAccumulators(const Accumulators<Pairs>& accumulators,
                                                  ProductShared<Pairs>& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < Pairs / 2; ++i) {
      const int row = 16 * half + lane / 4 + i % 4 / 2 * 8;
      const int pair = i / 4 * 8 + lane % 4 * 2 + i % 2;
      shared.partials[warp][row][pair] = accumulators[half][i / 4][i % 4];
    }
  }
}

// What the epilogue needs of an item, besides its sums.
template <int Pairs, bool Gated>
__device__ __forceinline__ void LoadEpilogue(const ExpertProduct& args, const ProductItem& item,
                                             ProductShared<Pairs>& shared) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kItemOutputs) {
    const int first = i < 16 ? item.row_begin[0] : item.row_begin[1];
    const int at = min(first + i % 16, args.matrix_rows - 1);
    shared.bias[i] = item.matrix.bias != nullptr ? item.matrix.bias[at] : 0.0f;
  }
  if (!Gated && i >= 32 && i < 32 + item.tile.count) {
    const int slot = __ldcg(args.routes.pairs + item.tile.begin + i - 32);
    shared.slots[i - 32] = slot;
    shared.weights[i - 32] = __ldcg(args.routes.weights + slot);
  }
}

// Element (row, pair) of the product, rows counted from the item's first: the sum over the warps,
// with its bias.
template <int Pairs>
__device__ __forceinline__ float ReduceWarps(const ProductShared<Pairs>& shared, int row,
                                             int pair) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kExpertWarps; ++warp) sum += shared.partials[warp][row][pair];
  return sum + shared.bias[row];
}

__device__ __forceinline__ float Activate(float gate, float up, float limit) {
  if (limit <= 0) return gate / (1.0f + expf(-gate)) * up;
  gate = fminf(gate, limit);
  up = fminf(fmaxf(up, -limit), limit);
  return gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
}

template <typename T, int Pairs>
__device__ __forceinline__ void StoreGated(const ExpertProduct& args, const ProductItem& item,
                                           const ProductShared<Pairs>& shared) {
  constexpr int kOutputs = kItemOutputs / 2;
  const bool alternate = args.gate_limit > 0;
  T* out = static_cast<T*>(args.out) + item.tile.begin * args.out_stride;
  for (int i = threadIdx.x; i < kOutputs * item.tile.count; i += kExpertThreads) {
    const int j = i % kOutputs, pair = i / kOutputs;
    if (item.first + j >= args.outputs) continue;
    const float gate = ReduceWarps(shared, alternate ? 2 * j : j, pair);
    const float up = ReduceWarps(shared, alternate ? 2 * j + 1 : kOutputs + j, pair);
    out[pair * args.out_stride + item.first + j] =
        FromFloat<T>(Activate(gate, up, args.gate_limit) * args.out_factor);
  }
  if (item.first + kOutputs < args.outputs) return;
  const int padding = static_cast<int>(args.out_stride) - args.outputs;
  for (int i = threadIdx.x; i < padding * item.tile.count; i += kExpertThreads) {
    out[i / padding * args.out_stride + args.outputs + i % padding] = FromFloat<T>(0.0f);
  }
}

template <int Pairs>
__device__ __forceinline__ void StoreWeighted(const ExpertProduct& args, const ProductItem& item,
                                              const ProductShared<Pairs>& shared) {
  for (int i = threadIdx.x; i < kItemOutputs * item.tile.count; i += kExpertThreads) {
    const int j = i % kItemOutputs, pair = i / kItemOutputs;
    if (item.first + j >= args.outputs) continue;
    static_cast<float*>(args.out)[shared.slots[pair] * args.out_stride + item.first + j] =
        shared.weights[pair] * ReduceWarps(shared, j, pair);
  }
}

// Items side by side have rows of x in common: a multiprocessor takes a range of them, in which its
// blocks take turns. Where one resident block is enough for the compiler, it takes the registers to
// load rows of x ahead.
// gate_up lets down start only when the routes are there, so that down's weights, which the routes
// name, are read ahead of its PdlWait.
template <typename Format, int Pairs, bool Gated>
__global__ void __launch_bounds__(kExpertThreads, 1)
    ExpertProductKernel(const __grid_constant__ ExpertProduct args) {
  __shared__ ProductShared<Pairs> shared;
  if constexpr (Gated) PdlWait();
  PdlTrigger();
  const int num_items = __ldcg(args.routes.num_tiles) *
                        CeilDiv(args.outputs, Gated ? kItemOutputs / 2 : kItemOutputs);
  const auto range = [&](int i) { return static_cast<int>(int64_t{num_items} * i / args.ranges); };
  const int own = blockIdx.x % args.ranges;
  const int end = range(own + 1), step = gridDim.x / args.ranges;
  bool waits = !Gated;
  const auto wait = [&] {
    if (waits) PdlWait();
    waits = false;
  };
  for (int index = range(own) + blockIdx.x / args.ranges; index < end; index += step) {
    const auto item = ProductItem::Of<Gated>(args, index);
    const auto begin = [&] {
      LoadEpilogue<Pairs, Gated>(args, item, shared);
      wait();
    };
    Format::template AccumulateItem<Pairs, Gated>(args, item, begin, shared);
    __syncthreads();
    if constexpr (Gated) {
      StoreGated<typename Format::T, Pairs>(args, item, shared);
    } else {
      StoreWeighted<Pairs>(args, item, shared);
    }
    __syncthreads();
  }
  wait();
}

template <typename Format, int Pairs, bool Gated>
void LaunchProduct(const Stream& stream, const ExpertProduct& product, int items) {
  const auto kernel = &ExpertProductKernel<Format, Pairs, Gated>;
  static const int resident = [&] {
    int blocks = 0;
    TALON_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kExpertThreads, 0));
    return blocks;
  }();
  TALON_CHECK(resident > 0);
  ExpertProduct args = product;
  args.ranges = std::min(items, stream.multiprocessors);
  const int blocks = args.ranges * std::min(resident, CeilDiv(items, args.ranges));
  Launch(stream, kernel, blocks, kExpertThreads, 0, args);
}

template <typename Format, bool Gated>
void LaunchProductOf(const Stream& stream, const ExpertProduct& product, int tile_pairs,
                     int items) {
  switch (tile_pairs) {
    case 8:
      return LaunchProduct<Format, 8, Gated>(stream, product, items);
    case 16:
      return LaunchProduct<Format, 16, Gated>(stream, product, items);
    default:
      return LaunchProduct<Format, 32, Gated>(stream, product, items);
  }
}

template <typename Format>
void LaunchProducts(const Stream& stream, const ExpertProduct& product, bool gated, int tile_pairs,
                    int items) {
  if (gated) return LaunchProductOf<Format, true>(stream, product, tile_pairs, items);
  LaunchProductOf<Format, false>(stream, product, tile_pairs, items);
}

// AccumulateItem for formats that mma.sync takes.
template <typename Format>
struct MmaAccumulate {
  template <int Pairs, bool Gated, typename Begin>
  static __device__ __forceinline__ void AccumulateItem(const ExpertProduct& args,
                                                        const ProductItem& item, const Begin& begin,
                                                        ProductShared<Pairs>& shared) {
    Accumulators<Pairs> accumulators = {};
    cuda::AccumulateItem<Format, Pairs, Gated>(args, item, begin, accumulators);
    ShareAccumulators<Pairs>(accumulators, shared);
  }
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_EXPERTS_PRODUCTS_CUH_
