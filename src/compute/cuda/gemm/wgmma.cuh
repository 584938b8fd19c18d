// The kernel of gemm/wgmma.h; gemm/wgmma_layout.h explains its stages. Included by CUDA sources
// only.
//
// Warp-specialised: one producer thread in the last warp fills a ring of stages by TMA; one or two
// consumer warpgroups multiply them with wgmma, 64 rows each.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_CUH_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_CUH_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/gemm/wgmma_fp8.cuh"
#include "compute/cuda/gemm/wgmma_layout.h"
#include "compute/cuda/gemm/wgmma_mma.cuh"
#include "compute/cuda/gemm/wgmma_ring.cuh"
#include "compute/cuda/gemm/wgmma_store.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Loads by TMA, for a producer of one thread.
template <int kOutputs>
class WgmmaLoads {
 public:
  __device__ WgmmaLoads(const CUtensorMap& weights, const CUtensorMap& x, const WgmmaArgs& args,
                        const WgmmaBlock& block)
      : weights_(weights), x_(x), args_(args), block_(block) {}

  __device__ void Prefetch() const {
    PrefetchTensorMap(weights_);
    PrefetchTensorMap(x_);
  }

  __device__ void LoadWeights(const StageCursor& at, int slot) const {
    const int row = at.item / args_.row_tiles * (args_.swiglu ? kOutputs / 2 : kOutputs);
    const int slice_rows = args_.stage_slices * kSliceRowBytes;
    MbarrierArriveExpectTx(block_.Full(slot), (kOutputs + args_.stage_rows) * slice_rows);
    TmaLoadSlices(weights_, row, block_.slice_begin + at.slice,
                  Stage(slot) + args_.stage_rows * slice_rows, block_.Full(slot));
  }

  __device__ void LoadOperand(const StageCursor& at, int slot) const {
    TmaLoadSlices(x_, StageRow(args_, at.item), block_.slice_begin + at.slice, Stage(slot),
                  block_.Full(slot));
  }

 private:
  __device__ uint32_t Stage(int slot) const { return block_.ring + slot * args_.stage_bytes; }

  const CUtensorMap& weights_;
  const CUtensorMap& x_;
  const WgmmaArgs& args_;
  const WgmmaBlock& block_;
};

// Starts the wgmma group that adds the stage at `stage` to a warpgroup's accumulators.
template <typename Operand, int kOutputs, int kSlices>
__device__ __forceinline__ void MultiplyStage(uint32_t stage, int stage_rows, int group,
                                              float (&acc)[kOutputs / 2]) {
  const uint32_t x_bytes = stage_rows * kSliceRowBytes;  // bytes of a slice
  constexpr uint32_t kWeightBytes = kOutputs * kSliceRowBytes;
  WgmmaFence();
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    const uint64_t x =
        MatrixDescriptor(stage + slice * x_bytes + group * kGroupRows * kSliceRowBytes);
    const uint64_t w = MatrixDescriptor(stage + kSlices * x_bytes + slice * kWeightBytes);
#pragma unroll
    for (int step = 0; step < kWgmmaSliceCols / kWgmmaStepCols; ++step) {
      Wgmma<Operand>(acc, x + step * kDescriptorStep, w + step * kDescriptorStep);
    }
  }
  WgmmaCommitGroup();
}

// Accumulates the next `count` stages. A stage is released once the next one's wgmma group is
// issued.
template <typename Operand, int kOutputs, int kSlices>
__device__ __forceinline__ void AccumulateStages(const WgmmaArgs& args, const WgmmaBlock& block,
                                                 int count, int group, PipelineState* state,
                                                 float (&acc)[kOutputs / 2]) {
  const bool leader = threadIdx.x % 32 == 0;
#pragma unroll
  for (float& value : acc) value = 0;
  PinAccumulators(acc);
  int before = 0;
  for (int stage = 0; stage < count; ++stage) {
    MbarrierWait(block.Full(state->slot), state->parity);
    __syncwarp();
    MultiplyStage<Operand, kOutputs, kSlices>(block.ring + state->slot * args.stage_bytes,
                                              args.stage_rows, group, acc);
    WgmmaWaitGroup<1>();
    if (stage > 0 && leader) MbarrierArrive(block.Empty(before));
    before = state->slot;
    state->Advance(args.ring);
  }
  __syncwarp();
  WgmmaWaitGroup<0>();
  PinAccumulators(acc);
  if (count > 0 && leader) MbarrierArrive(block.Empty(before));
}

// Accumulates the next `slices` slices.
template <typename Operand, int kOutputs, bool kSegmented, int kSlices = MostSlices(kOutputs)>
__device__ __forceinline__ void AccumulateSlices(const WgmmaArgs& args, const WgmmaBlock& block,
                                                 int slices, int group, PipelineState* state,
                                                 float (&acc)[kOutputs / 2]) {
  if constexpr (kSlices > 1) {
    if (args.stage_slices != kSlices) {
      return AccumulateSlices<Operand, kOutputs, kSegmented, kSlices / 2>(args, block, slices,
                                                                          group, state, acc);
    }
  }
  if constexpr (IsFp8<Operand>) {
    AccumulateFp8Stages<Operand, kOutputs, kSegmented, kSlices>(args, block, slices / kSlices,
                                                                group, state, acc);
  } else {
    AccumulateStages<Operand, kOutputs, kSlices>(args, block, slices / kSlices, group, state, acc);
  }
}

// Accumulates the block's item of an output tile: its split, or all segments in order.
template <typename Operand, int kOutputs, bool kSegmented>
__device__ __forceinline__ void AccumulateItem(const WgmmaArgs& args, const WgmmaBlock& block,
                                               int tile, int group, PipelineState* state,
                                               float (&acc)[kOutputs / 2]) {
  if constexpr (!kSegmented) {
    AccumulateSlices<Operand, kOutputs, kSegmented>(args, block, block.slice_count, group, state,
                                                    acc);
    ScaleSegment<Operand, kOutputs>(args, tile, acc);
  } else {
    float sum[kOutputs / 2];
    for (int segment = 0; segment < args.segments; ++segment) {
      const int count = SegmentBegin(args.slices, args.segments, segment + 1) -
                        SegmentBegin(args.slices, args.segments, segment);
      AccumulateSlices<Operand, kOutputs, kSegmented>(args, block, count, group, state, acc);
      ScaleSegment<Operand, kOutputs>(args, tile, acc);
#pragma unroll
      for (int i = 0; i < kOutputs / 2; ++i) sum[i] = segment == 0 ? acc[i] : sum[i] + acc[i];
    }
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) acc[i] = sum[i];
  }
}

__device__ __forceinline__ void SyncGroups(int groups) {
  __syncwarp();
  asm volatile("bar.sync 1, %0;" ::"r"(groups * kGroupThreads) : "memory");
}

// Waits until all blocks of a split-K tile have written their accumulators. All of them are
// resident, or will be when the preceding kernels end; the last to leave resets `arrivals` for the
// next launch.
__device__ __forceinline__ void WaitForSplits(int32_t* arrivals, int splits, int groups) {
  __threadfence();
  SyncGroups(groups);
  if (threadIdx.x == 0) {
    atomicAdd(arrivals, 1);
    int32_t arrived = 0;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                   : "=r"(arrived)
                   : "l"(arrivals)
                   : "memory");
    } while (arrived < splits);
    if (atomicAdd(arrivals, 1) == 2 * splits - 1) *arrivals = 0;
  }
  SyncGroups(groups);
}

// The consumers: accumulate each item and run its epilogue. With split-K a block has a single item
// of one row tile.
template <typename Operand, int kOutputs, bool kSegmented>
__device__ __forceinline__ void Consume(const WgmmaArgs& args, const WgmmaBlock& block, int group) {
  PipelineState state;
  float* partials = args.partials + int64_t{block.first_item} * args.splits * args.rows * kOutputs;
  for (int item = block.first_item; item < args.items; item += block.item_step) {
    float acc[kOutputs / 2];
    const int tile = item / args.row_tiles;
    AccumulateItem<Operand, kOutputs, kSegmented>(args, block, tile, group, &state, acc);
    const int first_row = StageRow(args, item) + group * kGroupRows;
    if (args.splits == 1) {
      constexpr bool kRounds = IsFp8<Operand> && kOutputs == kRoundingOutputs[0];
      RunEpilogue<RowType<Operand>, kOutputs, kRounds>(args, tile, TileRow(args, item), first_row,
                                                       acc);
    } else {
      StorePartial<kOutputs>(partials + block.rank * args.rows * kOutputs, first_row, args.rows,
                             acc);
    }
  }
  if (args.splits == 1) return;
  WaitForSplits(args.arrivals + block.first_item, args.splits, args.groups);
  RunSplitKEpilogue<RowType<Operand>>(args, kOutputs, block.first_item, partials, block.rank,
                                      args.groups * kGroupThreads);
}

template <typename Operand, int kOutputs, bool kSegmented = false>
__global__ void __launch_bounds__(kMaxGroups* kGroupThreads + ProducerThreads(IsFp8<Operand>), 1)
    WgmmaKernel(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                const __grid_constant__ WgmmaArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ WgmmaBarriers barriers;
  PdlTrigger();
  const WgmmaBlock block = DescribeBlock(args, barriers);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  const int consumers = args.groups * kGroupThreads;
  using Loads =
      std::conditional_t<IsFp8<Operand>, Fp8Loads<Operand, kOutputs>, WgmmaLoads<kOutputs>>;
  RingProducer producer(Loads(weights, x, args, block), args, block);
  const bool produces = warp == consumers / 32 && (IsFp8<Operand> || threadIdx.x % 32 == 0);
  if (produces) {
    if (threadIdx.x % 32 == 0) InitRing(args, block);
    if constexpr (IsFp8<Operand>) __syncwarp();
    if (args.constant_weights) producer.StartWeights();
  }
  __syncthreads();
  PdlWait();
  if (warp >= consumers / 32) {
    if constexpr (IsFp8<Operand>) SetMaxNRegDec<40>();
    if (!produces) return;
    if (!args.constant_weights) producer.StartWeights();
    producer.Run();
  } else {
    if constexpr (IsFp8<Operand>) SetMaxNRegInc<232>();
    Consume<Operand, kOutputs, kSegmented>(args, block, warp / 4);
  }
#endif
}

// The kernels for tiles of kTiles outputs, and the segmented one.
template <typename Operand, const auto& kTiles>
WgmmaKernels AllWgmmaKernels() {
  static constexpr auto kFunctions = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array{WgmmaKernel<Operand, kTiles[kIndex]>...};
  }
  (std::make_index_sequence<kTiles.size()>());
  return {kTiles, kFunctions, WgmmaKernel<Operand, kSegmentedOutputs, true>};
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_CUH_
