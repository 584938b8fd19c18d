// The kernel of gemm_stream.h; gemm_layout.h explains its tiles. Included by CUDA sources only.
//
// A block streams its stages through a ring in shared memory with asynchronous copies. The weights
// of the first stages are asked for before WaitForInputs: they never change. Sums are taken in a
// fixed order: a warp's slice of every stage in turn, the slices of a block, the splits of a tile
// (by the block that arrives last, which reads all of them back).
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_

#include "compute/cuda/gemm_layout.h"
#include "compute/cuda/gemm_stream.h"
#include "compute/cuda/gemm_stream_load.cuh"
#include "compute/cuda/gemm_stream_warp.cuh"
#include "compute/cuda/launch.h"

namespace talon::cuda {

__device__ __forceinline__ float4 Add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Adds bias and what `out` holds, where asked for, and writes up to four outputs of a row.
__device__ __forceinline__ void StoreOutputs(const StreamArgs& args, int row, int output,
                                             float4 sum) {
  float* out = args.out + row * args.out_stride + output;
  if (args.aligned && output + 4 <= args.outputs) {
    if (args.bias != nullptr) {
      const float* bias = args.bias + output;
      sum = Add(sum, {bias[0], bias[1], bias[2], bias[3]});
    }
    if (args.accumulate) sum = Add(sum, *reinterpret_cast<const float4*>(out));
    *reinterpret_cast<float4*>(out) = sum;
    return;
  }
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (output + i >= args.outputs) break;
    float value = values[i];
    if (args.bias != nullptr) value += args.bias[output + i];
    if (args.accumulate) value += out[i];
    out[i] = value;
  }
}

// Calls f(row, output) for every four outputs, the first of them given, of the tile's existing
// rows.
template <typename Tile, typename F>
__device__ __forceinline__ void ForEachQuad(const StreamArgs& args, const StreamPlace& place,
                                            F&& f) {
  constexpr int kQuads = Tile::kOutputs / 4;
  const int rows = min(Tile::kRows, args.rows - place.first_row);
#pragma unroll 2
  for (int id = static_cast<int>(threadIdx.x); id < rows * kQuads; id += Tile::kThreads) {
    f(id / kQuads, id % kQuads * 4);
  }
}

template <typename Tile>
__device__ __forceinline__ float4 SumOfSlices(const float* sums, int row, int output) {
  float4 sum = *reinterpret_cast<const float4*>(sums + Tile::SumIndex(0, row, output));
#pragma unroll
  for (int slice = 1; slice < Tile::kSlices; ++slice) {
    sum = Add(sum, *reinterpret_cast<const float4*>(sums + Tile::SumIndex(slice, row, output)));
  }
  return sum;
}

// True in the block that arrives last of a tile's splits; it sees what the others wrote.
__device__ __forceinline__ bool ArrivesLast(int32_t* arrivals, int splits) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrivals, 1) == splits - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// Sums the splits of a tile through global memory and writes the outputs.
template <typename Tile>
__device__ void FinishSplit(const StreamArgs& args, const StreamPlace& place, const float* sums) {
  constexpr int kTileSums = Tile::kRows * Tile::kOutputs;
  float* partials = args.partials + int64_t{place.tile} * args.splits * kTileSums;
  ForEachQuad<Tile>(args, place, [&](int row, int output) {
    float* to = partials + place.split * kTileSums + row * Tile::kOutputs + output;
    __stcg(reinterpret_cast<float4*>(to), SumOfSlices<Tile>(sums, row, output));
  });
  if (!ArrivesLast(args.arrivals + place.tile, args.splits)) return;
  ForEachQuad<Tile>(args, place, [&](int row, int output) {
    const float* from = partials + row * Tile::kOutputs + output;
    float4 parts[kMaxSplits];
#pragma unroll
    for (int split = 0; split < kMaxSplits; ++split) {
      if (split >= args.splits) break;
      parts[split] = __ldcg(reinterpret_cast<const float4*>(from + split * kTileSums));
    }
    float4 sum = parts[0];
#pragma unroll
    for (int split = 1; split < kMaxSplits; ++split) {
      if (split >= args.splits) break;
      sum = Add(sum, parts[split]);
    }
    StoreOutputs(args, place.first_row + row, place.first_output + output, sum);
  });
}

template <typename Tile, typename Operand, int kBlocksPerMultiprocessor>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerMultiprocessor)
    StreamProduct(const StreamArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kAhead = Tile::kStages - 1;
  LetNextStart();
  const StreamPlace place = PlaceOfBlock<Tile>(args);
  const StageLoader<Tile> loader(args, place, shared);
  for (int stage = 0; stage < kAhead; ++stage) {
    if (stage < place.stage_count) loader.LoadWeights(stage, stage);
    CommitCopies();
  }
  loader.PrefetchWeights(kAhead);
  WaitForInputs();
  for (int stage = 0; stage < kAhead; ++stage) {
    if (stage < place.stage_count) loader.LoadOperand(stage, stage);
    CommitCopies();
  }
  WarpSums<Tile, Operand> warp;
  int read_slot = 0;
  int write_slot = kAhead;
  for (int stage = 0; stage < place.stage_count; ++stage) {
    // 2 * kAhead + stage groups of copies were made; the stage's last is number kAhead + stage.
    WaitForCopies<kAhead - 1>();
    __syncthreads();  // all have read the stage before, whose slot is filled next
    if (stage + kAhead < place.stage_count) {
      loader.LoadWeights(stage + kAhead, write_slot);
      loader.LoadOperand(stage + kAhead, write_slot);
    }
    CommitCopies();
    warp.AddStage(shared + read_slot * Tile::kStageBytes);
    write_slot = read_slot;
    read_slot = read_slot + 1 == Tile::kStages ? 0 : read_slot + 1;
  }
  WaitForCopies<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
  warp.Store(sums);
  __syncthreads();
  if (args.splits > 1) {
    FinishSplit<Tile>(args, place, sums);
    return;
  }
  ForEachQuad<Tile>(args, place, [&](int row, int output) {
    StoreOutputs(args, place.first_row + row, place.first_output + output,
                 SumOfSlices<Tile>(sums, row, output));
  });
}

template <StreamTileKind kKind, typename Tile, typename Operand, int kBlocksPerMultiprocessor = 2>
StreamKernel MakeStreamKernel() {
  return {kKind,
          Tile::kRows,
          Tile::kOutputs,
          Tile::kStageCols,
          Tile::kThreads,
          Tile::kSharedBytes,
          StreamProduct<Tile, Operand, kBlocksPerMultiprocessor>};
}

// The kernels of one type of weights.
template <int kElementBytes, typename Operand>
std::span<const StreamKernel> AllStreamKernels() {
  using enum StreamTileKind;
  constexpr int kBudget = kHalfMultiprocessor;
  static const StreamKernel kernels[] = {
      MakeStreamKernel<kDeep, StreamTile<kElementBytes, 4, 2, 1, kWholeMultiprocessor>, Operand,
                       1>(),
      MakeStreamKernel<kDeep, StreamTile<kElementBytes, 4, 2, 2, kWholeMultiprocessor>, Operand,
                       1>(),
      MakeStreamKernel<kTall, StreamTile<kElementBytes, 4, 2, 1, kBudget>, Operand>(),
      MakeStreamKernel<kTall, StreamTile<kElementBytes, 4, 2, 2, kBudget>, Operand>(),
      MakeStreamKernel<kTall, StreamTile<kElementBytes, 4, 2, 4, kBudget>, Operand>(),
      MakeStreamKernel<kTall, StreamTile<kElementBytes, 4, 2, 8, kBudget>, Operand>(),
  };
  return kernels;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_
