// The kernel of gemm/stream.h; gemm/layout.h explains its tiles. Included by CUDA sources only.
//
// A block streams its stages through a ring in shared memory with cp.async. Weights are constant,
// so the first stages' weights are prefetched before PdlWait. Accumulation has a fixed order: each
// warp its slice of every stage in turn, then the slices of a block, then the splits of a tile
// (split-K: by the last block to arrive, which reads all partials back).
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_

#include "compute/cuda/gemm/heads.cuh"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/stream.h"
#include "compute/cuda/gemm/stream_load.cuh"
#include "compute/cuda/gemm/stream_store.cuh"
#include "compute/cuda/gemm/stream_warp.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Calls f(row, output) for every group of four outputs, `output` being the first, of the tile's
// existing rows.
template <typename Tile, typename F>
__device__ __forceinline__ void ForEachQuad(const StreamArgs& args, const StreamWork& work, F&& f) {
  constexpr int kQuads = Tile::kOutputs / 4;
  const int rows = min(Tile::kRows, args.rows - work.first_row);
#pragma unroll 2
  for (int id = static_cast<int>(threadIdx.x); id < rows * kQuads; id += Tile::kThreads) {
    f(id / kQuads, id % kQuads * 4);
  }
}

// Returns true in the last block of a tile's splits to arrive, which then sees the others' writes.
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

// Epilogue: stores all outputs of a tile. outputs_of(row, output) returns four reduced
// accumulators.
template <typename Tile, typename OutputsOf>
__device__ __forceinline__ void RunEpilogue(const StreamArgs& args, const StreamWork& work,
                                            OutputsOf&& outputs_of) {
  if (args.heads.places == nullptr) {
    return ForEachQuad<Tile>(args, work, [&](int row, int output) {
      StoreOutputs(args, work.first_row + row, work.first_output + output, outputs_of(row, output));
    });
  }
  constexpr int kPairs = Tile::kOutputs / 8;
  const int rows = min(Tile::kRows, args.rows - work.first_row);
  const int head_dim = args.heads.shape.head_dim;
  for (int id = static_cast<int>(threadIdx.x); id < rows * kPairs; id += Tile::kThreads) {
    const int row = id / kPairs;
    const int in_tile = OutputOfPair(id % kPairs, head_dim);
    const int output = work.first_output + in_tile;
    if (output >= args.outputs) continue;
    const int partner = in_tile + head_dim / 2;
    const float4 a = WithBias(args, output, outputs_of(row, in_tile));
    const float4 b = WithBias(args, work.first_output + partner, outputs_of(row, partner));
    const int out_row = work.first_row + row;
    StoreHeadPair(args.heads, out_row, output / head_dim, output % head_dim, a, b,
                  args.out + out_row * args.out_stride);
  }
}

// Reduces four accumulators over the splits of a tile, in order.
template <typename Tile>
__device__ __forceinline__ float4 ReduceSplits(const float* partials, int splits, int row,
                                               int output) {
  constexpr int kTileAccumulators = Tile::kRows * Tile::kOutputs;
  const float* from = partials + row * Tile::kOutputs + output;
  float4 parts[kMaxSplits];
#pragma unroll
  for (int split = 0; split < kMaxSplits; ++split) {
    if (split >= splits) break;
    parts[split] = __ldcg(reinterpret_cast<const float4*>(from + split * kTileAccumulators));
  }
  float4 sum = parts[0];
#pragma unroll
  for (int split = 1; split < kMaxSplits; ++split) {
    if (split >= splits) break;
    sum = Add(sum, parts[split]);
  }
  return sum;
}

// Split-K epilogue: reduces the splits of a tile through global memory and stores the outputs.
template <typename Tile>
__device__ void RunSplitKEpilogue(const StreamArgs& args, const StreamWork& work,
                                  const float* acc) {
  constexpr int kTileAccumulators = Tile::kRows * Tile::kOutputs;
  float* partials = args.partials + int64_t{work.tile} * args.splits * kTileAccumulators;
  ForEachQuad<Tile>(args, work, [&](int row, int output) {
    float* to = partials + work.split * kTileAccumulators + row * Tile::kOutputs + output;
    __stcg(reinterpret_cast<float4*>(to), ReduceSlices<Tile>(acc, row, output));
  });
  if (!ArrivesLast(args.arrivals + work.tile, args.splits)) return;
  RunEpilogue<Tile>(args, work, [&](int row, int output) {
    return ReduceSplits<Tile>(partials, args.splits, row, output);
  });
}

template <typename Tile, typename Operand, int kBlocksPerMultiprocessor>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerMultiprocessor)
    StreamGemmKernel(const StreamArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kAhead = Tile::kStages - 1;
  PdlTrigger();
  const StreamWork work = WorkOfBlock<Tile>(args);
  const StageLoader<Tile> loader(args, work, shared);
  for (int stage = 0; stage < kAhead; ++stage) {
    if (stage < work.stage_count) loader.LoadWeights(stage, stage);
    CpAsyncCommitGroup();
  }
  PdlWait();
  for (int stage = 0; stage < kAhead; ++stage) {
    if (stage < work.stage_count) loader.LoadOperand(stage, stage);
    CpAsyncCommitGroup();
  }
  WarpAccumulator<Tile, Operand> warp;
  int read_slot = 0;
  int write_slot = kAhead;
  for (int stage = 0; stage < work.stage_count; ++stage) {
    // 2 * kAhead + stage cp.async groups were committed; the stage's last is number kAhead + stage.
    CpAsyncWaitGroup<kAhead - 1>();
    __syncthreads();  // all warps have read the previous stage, whose slot is refilled next
    if (stage + kAhead < work.stage_count) {
      loader.LoadWeights(stage + kAhead, write_slot);
      loader.LoadOperand(stage + kAhead, write_slot);
    }
    CpAsyncCommitGroup();
    warp.AddStage(shared + read_slot * Tile::kStageBytes);
    write_slot = read_slot;
    read_slot = read_slot + 1 == Tile::kStages ? 0 : read_slot + 1;
  }
  CpAsyncWaitGroup<0>();
  __syncthreads();
  float* acc = reinterpret_cast<float*>(shared);
  warp.Store(acc);
  __syncthreads();
  if (args.splits > 1) {
    RunSplitKEpilogue<Tile>(args, work, acc);
    return;
  }
  RunEpilogue<Tile>(args, work,
                    [&](int row, int output) { return ReduceSlices<Tile>(acc, row, output); });
}

template <typename Operand, int kElementBytes, int kRowTiles>
StreamKernel MakeStreamKernel() {
  using Tile = StreamTile<kElementBytes, 4, 2, kRowTiles, kHalfMultiprocessor>;
  return {Tile::kRows,    Tile::kOutputs,     Tile::kStageCols,
          Tile::kThreads, Tile::kSharedBytes, StreamGemmKernel<Tile, Operand, 2>};
}

// The kernels of one type of weights.
template <int kElementBytes, typename Operand>
std::span<const StreamKernel> AllStreamKernels() {
  static const StreamKernel kernels[] = {
      MakeStreamKernel<Operand, kElementBytes, 1>(), MakeStreamKernel<Operand, kElementBytes, 2>(),
      MakeStreamKernel<Operand, kElementBytes, 4>(), MakeStreamKernel<Operand, kElementBytes, 8>()};
  return kernels;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_CUH_
