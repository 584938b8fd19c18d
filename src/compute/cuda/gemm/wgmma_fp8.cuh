// Sums of FP8 products in gemm/wgmma.cuh. Included by CUDA sources only.
//
// A unit is one slice of the inputs, 128, for as many outputs as an instruction takes: the sums of
// its products start at zero and are added to the accumulators in float32, times the scales of the
// row and, where groups of inputs have scales, of the output. The accumulators see slice after
// slice in ascending order, so that their bits do not depend on how many units are on their way.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_FP8_CUH_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_FP8_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/gemm/wgmma_layout.h"
#include "compute/cuda/gemm/wgmma_mma.cuh"
#include "compute/cuda/gemm/wgmma_ring.cuh"

namespace talon::cuda {

// FP8 in place of an operand's type. kGroups: each output has a scale for every slice
// (WgmmaArgs::group_scales).
template <bool kGroupsOf>
struct Fp8Operand {
  static constexpr bool kGroups = kGroupsOf;
};
template <typename Operand>
inline constexpr bool IsFp8 = false;
template <bool kGroups>
inline constexpr bool IsFp8<Fp8Operand<kGroups>> = true;

// The type of rows that a kernel stores for the next GEMM.
template <typename Operand>
using RowType = std::conditional_t<IsFp8<Operand>, __nv_bfloat16, Operand>;

// Outputs of an instruction, and how many units are on their way at once, by the registers there
// are for their sums.
constexpr int Fp8UnitOutputs(int outputs) { return outputs <= 128 ? outputs : outputs / 2; }
constexpr int Fp8Batch(int outputs, int slices, bool groups, bool segmented) {
  const int unit = Fp8UnitOutputs(outputs);
  const int units = slices * (outputs / unit);
  const int room = ((groups ? 288 : 384) - (segmented ? 2 : 1) * outputs) / unit;
  for (int batch = units; batch > 1; batch /= 2) {
    if (batch <= room) return batch;
  }
  return 1;
}

// Loads by TMA, for a producer of one warp: lanes for the weights, for x and for the scales of each
// slice.
template <typename Operand, int kOutputs>
class Fp8Loads {
 public:
  __device__ Fp8Loads(const CUtensorMap& weights, const CUtensorMap& x, const WgmmaArgs& args,
                      const WgmmaBlock& block)
      : weights_(weights), x_(x), args_(args), block_(block), lane_(threadIdx.x % 32) {}

  __device__ void Prefetch() const {
    if (lane_ == 0) PrefetchTensorMap(weights_);
    if (lane_ == 1) PrefetchTensorMap(x_);
  }

  __device__ void LoadWeights(const StageCursor& at, int slot) const {
    const int scales = args_.stage_rows + (Operand::kGroups ? kOutputs : 0);
    const int bytes = slice_bytes() + scales * static_cast<int>(sizeof(float));
    if (lane_ == 0) MbarrierArriveExpectTx(block_.Full(slot), args_.stage_slices * bytes);
    __syncwarp();
    const int parts = args_.swiglu ? 2 : 1;
    const int first = at.item / args_.row_tiles * (kOutputs / parts);
    if (lane_ == 0) {
      TmaLoadSlices(weights_, first, FirstSlice(at),
                    Stage(slot) + args_.stage_slices * args_.stage_rows * kSliceRowBytes,
                    block_.Full(slot));
    }
    const int index = lane_ - kGroupLane;
    if (!Operand::kGroups || index < 0 || index >= args_.stage_slices * parts) return;
    const int slice = index / parts, part = index % parts;
    BulkLoad(
        args_.group_scales + (FirstSlice(at) + slice) * args_.group_stride + first +
            part * args_.outputs,
        kOutputs / parts * 4,
        Scales(slot) + (args_.stage_slices * args_.stage_rows + index * (kOutputs / parts)) * 4,
        block_.Full(slot));
  }

  __device__ void LoadOperand(const StageCursor& at, int slot) const {
    const int row = StageRow(args_, at.item);
    if (lane_ == 1) TmaLoadSlices(x_, row, FirstSlice(at), Stage(slot), block_.Full(slot));
    const int slice = lane_ - kRowLane;
    if (slice < 0 || slice >= args_.stage_slices) return;
    BulkLoad(args_.row_scales + (FirstSlice(at) + slice) * args_.row_stride + row,
             args_.stage_rows * 4, Scales(slot) + slice * args_.stage_rows * 4, block_.Full(slot));
  }

 private:
  static constexpr int kRowLane = 4, kGroupLane = 8;

  __device__ int FirstSlice(const StageCursor& at) const { return block_.slice_begin + at.slice; }
  __device__ int slice_bytes() const { return (kOutputs + args_.stage_rows) * kSliceRowBytes; }
  __device__ uint32_t Stage(int slot) const { return block_.ring + slot * args_.stage_bytes; }
  __device__ uint32_t Scales(int slot) const {
    return Stage(slot) + args_.stage_slices * slice_bytes();
  }

  const CUtensorMap& weights_;
  const CUtensorMap& x_;
  const WgmmaArgs& args_;
  const WgmmaBlock& block_;
  int lane_;
};

__device__ __forceinline__ float LoadSharedFloat(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ float2 LoadSharedFloat2(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

// Starts the wgmma group of a unit: x is the address of a warpgroup's rows, w of the outputs.
template <int kUnitOutputs>
__device__ __forceinline__ void StartUnit(uint32_t x_address, uint32_t w_address,
                                          float (&sums)[kUnitOutputs / 2]) {
  const uint64_t x = MatrixDescriptor(x_address);
  const uint64_t w = MatrixDescriptor(w_address);
  WgmmaFp8<false>(sums, x, w);
#pragma unroll
  for (int step = 1; step < kSliceRowBytes / 32; ++step) {
    WgmmaFp8<true>(sums, x + step * kDescriptorStep, w + step * kDescriptorStep);
  }
  WgmmaCommitGroup();
}

// The slices of one stage.
template <typename Operand, int kOutputs, bool kSegmented, int kSlices>
class Fp8Stage {
 public:
  static constexpr int kUnitOutputs = Fp8UnitOutputs(kOutputs);
  static constexpr int kParts = kOutputs / kUnitOutputs;
  static constexpr int kUnits = kSlices * kParts;
  static constexpr int kBatch = Fp8Batch(kOutputs, kSlices, Operand::kGroups, kSegmented);
  static constexpr int kSums = kUnitOutputs / 2;
  static_assert(kUnits % kBatch == 0);
  static_assert(!Operand::kGroups || kParts == 1);

  __device__ __forceinline__ Fp8Stage(const WgmmaArgs& args, int group)
      : args_(args), group_(group) {
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    // Rows behind the last one have no scales, and sums that are not stored.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = group * kGroupRows + AccumulatorRow(thread, half * 2);
      row_offset_[half] = min(row, args.stage_rows - 1) * 4;
    }
    output_offset_ = AccumulatorOutput(thread, 0) * 4;
  }

  // Adds the stage at `stage` in shared memory to the accumulators.
  __device__ __forceinline__ void AddTo(uint32_t stage, float (&acc)[kOutputs / 2]) const {
    const uint32_t scales = stage + kSlices * (kOutputs + args_.stage_rows) * kSliceRowBytes;
    float row_scales[kSlices][2];
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_scales[i][half] =
            LoadSharedFloat(scales + i * args_.stage_rows * 4 + row_offset_[half]);
      }
    }
#pragma unroll
    for (int first = 0; first < kUnits; first += kBatch) {
      float sums[kBatch][kSums];
      WgmmaFence();
#pragma unroll
      for (int unit = 0; unit < kBatch; ++unit) Start(stage, first + unit, sums[unit]);
      AddUnits<0>(scales, first, sums, row_scales, acc);
    }
  }

 private:
  __device__ __forceinline__ void Start(uint32_t stage, int unit, float (&sums)[kSums]) const {
    const int slice = unit / kParts, part = unit % kParts;
    const uint32_t x_bytes = args_.stage_rows * kSliceRowBytes;  // bytes of a slice
    const uint32_t x = stage + slice * x_bytes + group_ * kGroupRows * kSliceRowBytes;
    const uint32_t w =
        stage + kSlices * x_bytes + (slice * kOutputs + part * kUnitOutputs) * kSliceRowBytes;
    StartUnit<kUnitOutputs>(x, w, sums);
  }

  template <int kUnit>
  __device__ __forceinline__ void AddUnits(uint32_t scales, int first, float (&sums)[kBatch][kSums],
                                           const float (&row_scales)[kSlices][2],
                                           float (&acc)[kOutputs / 2]) const {
    WgmmaWaitGroup<kBatch - 1 - kUnit>();
    PinAccumulators(sums[kUnit]);
    const int slice = (first + kUnit) / kParts, part = (first + kUnit) % kParts;
    const uint32_t group_scales =
        scales + (kSlices * args_.stage_rows + slice * kOutputs) * 4 + output_offset_;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {  // two outputs of two rows
      float2 factor = {1, 1};
      if constexpr (Operand::kGroups) factor = LoadSharedFloat2(group_scales + i * 8);
      const float scale[4] = {row_scales[slice][0] * factor.x, row_scales[slice][0] * factor.y,
                              row_scales[slice][1] * factor.x, row_scales[slice][1] * factor.y};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& sum = acc[part * kSums + i + j];
        sum = __fmaf_rn(sums[kUnit][i + j], scale[j], sum);
      }
    }
    if constexpr (kUnit + 1 < kBatch) AddUnits<kUnit + 1>(scales, first, sums, row_scales, acc);
  }

  const WgmmaArgs& args_;
  int group_;
  int row_offset_[2];  // bytes
  int output_offset_;
};

// Accumulates the next `count` stages.
template <typename Operand, int kOutputs, bool kSegmented, int kSlices>
__device__ __forceinline__ void AccumulateFp8Stages(const WgmmaArgs& args, const WgmmaBlock& block,
                                                    int count, int group, PipelineState* state,
                                                    float (&acc)[kOutputs / 2]) {
  const Fp8Stage<Operand, kOutputs, kSegmented, kSlices> stage(args, group);
#pragma unroll
  for (float& value : acc) value = 0;
  for (int i = 0; i < count; ++i) {
    MbarrierWait(block.Full(state->slot), state->parity);
    __syncwarp();
    stage.AddTo(block.ring + state->slot * args.stage_bytes, acc);
    if (threadIdx.x % 32 == 0) MbarrierArrive(block.Empty(state->slot));
    state->Advance(args.ring);
  }
}

// Multiplies the sums of a segment by the scales of the tile's outputs. No store lies between the
// loads, so that they wait for memory together.
template <typename Operand, int kOutputs>
__device__ __forceinline__ void ScaleSegment(const WgmmaArgs& args, int tile,
                                             float (&acc)[kOutputs / 2]) {
  if constexpr (IsFp8<Operand>) {
    if (Operand::kGroups || args.segment_scales == nullptr) return;
    const int width = args.swiglu ? kOutputs / 2 : kOutputs;
    const int first = AccumulatorOutput(static_cast<int>(threadIdx.x) % kGroupThreads, 0);
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {  // two outputs of two rows
      const bool up = j * 8 >= width;
      const int output = tile * width + first + (up ? j * 8 - width : j * 8);
      const float* scales = args.segment_scales + (up ? args.up_offset : 0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float scale = output + i < args.outputs ? __ldg(scales + output + i) : 0.0f;
        acc[j * 4 + i] = __fmul_rn(acc[j * 4 + i], scale);
        acc[j * 4 + i + 2] = __fmul_rn(acc[j * 4 + i + 2], scale);
      }
    }
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_FP8_CUH_
