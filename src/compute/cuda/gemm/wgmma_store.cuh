// Epilogue of gemm/wgmma.cuh: bias, accumulation or SwiGLU, and stores; with split-K it is preceded
// by the reduction over the tile's blocks through global memory.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_STORE_CUH_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_STORE_CUH_

#include <cstdint>

#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/fp8_rows.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/gemm/wgmma_layout.h"

namespace talon::cuda {

// kCount consecutive outputs of a row.
template <int kCount>
struct Outputs {
  float v[kCount];
};

// Loads outputs from row[output] on; zeros beyond the last output.
template <int kCount>
__device__ __forceinline__ Outputs<kCount> LoadOutputs(const float* row, int output, int outputs,
                                                       bool aligned) {
  Outputs<kCount> values;
  if (aligned && output + kCount <= outputs) {
    if constexpr (kCount == 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + output);
      return {{four.x, four.y, four.z, four.w}};
    } else {
      const float2 two = *reinterpret_cast<const float2*>(row + output);
      return {{two.x, two.y}};
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.v[i] = output + i < outputs ? row[output + i] : 0.0f;
  return values;
}

template <int kCount>
__device__ __forceinline__ void StoreOutputs(float* row, int output, int outputs, bool aligned,
                                             const Outputs<kCount>& values) {
  if (aligned && output + kCount <= outputs) {
    if constexpr (kCount == 4) {
      *reinterpret_cast<float4*>(row + output) = {values.v[0], values.v[1], values.v[2],
                                                  values.v[3]};
    } else {
      *reinterpret_cast<float2*>(row + output) = {values.v[0], values.v[1]};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (output + i < outputs) row[output + i] = values.v[i];
  }
}

template <int kCount>
__device__ __forceinline__ void AddTo(Outputs<kCount>* sum, const Outputs<kCount>& other) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum->v[i] += other.v[i];
}

// From sums of products to outputs, from `output` on: scale and bias, which start at `first`.
template <int kCount>
__device__ __forceinline__ void Finish(const WgmmaArgs& args, int first, int output,
                                       Outputs<kCount>* sum) {
  if (args.scales != nullptr) {
    const auto scales = LoadOutputs<kCount>(args.scales + first, output, args.outputs, false);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum->v[i] *= scales.v[i];
  }
  if (args.bias != nullptr) {
    AddTo(sum, LoadOutputs<kCount>(args.bias + first, output, args.outputs, /*aligned=*/false));
  }
}

// silu(gate) * up of columns from `col` on in 16 bits, in pairs; zeros behind the last one.
template <typename Operand, int kCount>
__device__ __forceinline__ void SwiGluPairs(const WgmmaArgs& args, int col, Outputs<kCount> gate,
                                            Outputs<kCount> up, uint32_t (&pairs)[kCount / 2]) {
  Finish(args, 0, col, &gate);
  Finish(args, args.up_offset, col, &up);
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    __align__(4) Operand values[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Fast-math functions suffice: the result is rounded to 16 bits.
      const float silu = __fdividef(gate.v[i + j], 1.0f + __expf(-gate.v[i + j]));
      values[j] = FromFloat<Operand>(col + i + j < args.outputs ? silu * up.v[i + j] : 0.0f);
    }
    pairs[i / 2] = *reinterpret_cast<const uint32_t*>(values);
  }
}

// Stores silu(gate) * up of columns from `col` on to the operand of the next GEMM.
template <typename Operand, int kCount>
__device__ __forceinline__ void StoreSwiGlu(const WgmmaArgs& args, int row, int col,
                                            const Outputs<kCount>& gate,
                                            const Outputs<kCount>& up) {
  if (col >= args.padded_outputs) return;
  uint32_t pairs[kCount / 2];
  SwiGluPairs<Operand>(args, col, gate, up, pairs);
  auto* out = static_cast<Operand*>(args.operand) + row * args.operand_stride + col;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {  // padded_outputs is even
    reinterpret_cast<uint32_t*>(out)[i] = pairs[i];
  }
}

// The pair of accumulators that a thread has in the j-th group of eight outputs and row half
// `half`.
template <int kAccumulators>
__device__ __forceinline__ Outputs<2> PairOf(const float (&acc)[kAccumulators], int j, int half) {
  return {{acc[j * 4 + half * 2], acc[j * 4 + half * 2 + 1]}};
}

// Stores a thread's accumulators of one row. Old values of `out` are loaded in batches, ahead of
// the stores.
template <int kAccumulators>
__device__ __forceinline__ void StoreRow(const WgmmaArgs& args, int row, int first, int half,
                                         const float (&acc)[kAccumulators]) {
  constexpr int kPairs = kAccumulators / 4;
  constexpr int kBatch = 8;
  float* out = args.out + row * args.out_stride;
#pragma unroll
  for (int begin = 0; begin < kPairs; begin += kBatch) {
    Outputs<2> old[kBatch] = {};
    if (args.accumulate) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (begin + b >= kPairs) break;
        old[b] = LoadOutputs<2>(out, first + (begin + b) * 8, args.outputs, args.aligned);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (begin + b >= kPairs) break;
      const int output = first + (begin + b) * 8;
      Outputs<2> sum = PairOf(acc, begin + b, half);
      Finish(args, 0, output, &sum);
      if (args.accumulate) AddTo(&sum, old[b]);
      StoreOutputs(out, output, args.outputs, args.aligned, sum);
    }
  }
}

// Stores the SwiGLU of one row of a tile of kRoundingOutputs, rounded to FP8: bf16 first, so that
// the bits are those of rows that are stored in between. Four lanes have a row; all of a warp take
// part, whether or not theirs are `stored`.
template <int kAccumulators>
__device__ __forceinline__ void StoreRoundedRow(const WgmmaArgs& args, int tile, int row,
                                                bool stored, int half,
                                                const float (&acc)[kAccumulators]) {
  constexpr int kPairs = kFp8Group / 8;
  static_assert(kAccumulators == kRoundingOutputs[0] / 2);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int col = tile * kFp8Group + AccumulatorOutput(thread, 0);
  uint32_t pairs[kPairs];
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    uint32_t pair[1];
    SwiGluPairs<__nv_bfloat16>(args, col + j * 8, PairOf(acc, j, half),
                               PairOf(acc, j + kPairs, half), pair);
    pairs[j] = pair[0];
    largest = max(largest, LargerOfPair(pairs[j]));
  }
  largest = max(largest, __shfl_xor_sync(0xffffffff, largest, 1));
  largest = max(largest, __shfl_xor_sync(0xffffffff, largest, 2));
  const Fp8Scale scale = Fp8ScaleOf(largest);
  auto* codes = static_cast<uint8_t*>(args.operand) + row * args.operand_stride + tile * kFp8Group +
                thread % 4 / 2 * 4;
  const bool odd = thread % 2 == 1;
#pragma unroll
  for (int j = 0; j < kPairs; j += 2) {
    // Neighbours exchange pairs: the even one has four columns of j, the odd one of j + 1.
    const uint32_t own[2] = {Fp8CodesOfPair(pairs[j], scale.inverse),
                             Fp8CodesOfPair(pairs[j + 1], scale.inverse)};
    const uint32_t other = __shfl_xor_sync(0xffffffff, odd ? own[0] : own[1], 1);
    const uint32_t four = odd ? other | own[1] << 16 : own[0] | other << 16;
    if (stored) *reinterpret_cast<uint32_t*>(codes + (odd ? j + 1 : j) * 8) = four;
  }
  if (stored && thread % 4 == 0) {
    args.operand_scales[tile * args.operand_scale_stride + row] = scale.scale;
  }
}

// Epilogue of a warpgroup's accumulators, whose rows start at `first_row`; those from `tile_row` on
// are stored.
template <typename Operand, int kOutputs, bool kRounds>
__device__ __forceinline__ void RunEpilogue(const WgmmaArgs& args, int tile, int tile_row,
                                            int first_row, const float (&acc)[kOutputs / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + AccumulatorRow(thread, half * 2);
    const bool stored = row >= tile_row && row < args.rows;
    if constexpr (kRounds) {
      if (args.operand_scales != nullptr) {
        StoreRoundedRow(args, tile, row, stored, half, acc);
        continue;
      }
    }
    if (!stored) continue;
    if (!args.swiglu) {
      StoreRow(args, row, tile * kOutputs + AccumulatorOutput(thread, 0), half, acc);
      continue;
    }
    if constexpr (kOutputs % 16 == 0) {
      constexpr int kHalf = kOutputs / 2;
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) {
        StoreSwiGlu<Operand>(args, row, tile * kHalf + AccumulatorOutput(thread, 0) + j * 8,
                             PairOf(acc, j, half), PairOf(acc, j + kHalf / 8, half));
      }
    }
  }
}

// Split-K: stores a warpgroup's accumulators, whose rows start at `first_row`, to [rows][kOutputs].
template <int kOutputs>
__device__ __forceinline__ void StorePartial(float* partial, int first_row, int rows,
                                             const float (&acc)[kOutputs / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + AccumulatorRow(thread, half * 2);
    if (row >= rows) continue;
    float* to = partial + row * kOutputs + AccumulatorOutput(thread, 0);
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j) {
      const Outputs<2> pair = PairOf(acc, j, half);
      __stcg(reinterpret_cast<float2*>(to + j * 8), float2{pair.v[0], pair.v[1]});
    }
  }
}

// Reduces the splits, `stride` floats apart, in order.
__device__ __forceinline__ Outputs<4> ReduceSplits(const float* from, int splits, int stride) {
  float4 parts[kMaxSplits];
#pragma unroll
  for (int split = 0; split < kMaxSplits; ++split) {
    if (split < splits)
      parts[split] = __ldcg(reinterpret_cast<const float4*>(from + split * stride));
  }
  Outputs<4> sum = {{parts[0].x, parts[0].y, parts[0].z, parts[0].w}};
#pragma unroll
  for (int split = 1; split < kMaxSplits; ++split) {
    if (split < splits) {
      AddTo(&sum, {{parts[split].x, parts[split].y, parts[split].z, parts[split].w}});
    }
  }
  return sum;
}

// Split-K epilogue: reduces and stores this block's share of a tile of `outputs` outputs; threads
// [0, threads) of all its blocks take part.
template <typename Operand>
__device__ __forceinline__ void RunSplitKEpilogue(const WgmmaArgs& args, int outputs, int tile,
                                                  const float* partials, int rank, int threads) {
  const int width = args.swiglu ? outputs / 2 : outputs;
  const int quads = width / 4;
  const int stride = args.rows * outputs;
  for (int id = rank * threads + static_cast<int>(threadIdx.x); id < args.rows * quads;
       id += args.splits * threads) {
    const int row = id / quads;
    const int col = id % quads * 4;
    const float* from = partials + row * outputs + col;
    const int output = tile * width + col;
    if (args.swiglu) {
      const Outputs<4> gate = ReduceSplits(from, args.splits, stride);
      StoreSwiGlu<Operand>(args, row, output, gate,
                           ReduceSplits(from + width, args.splits, stride));
      continue;
    }
    float* out = args.out + row * args.out_stride;
    Outputs<4> old = {};
    if (args.accumulate) old = LoadOutputs<4>(out, output, args.outputs, args.aligned);
    Outputs<4> sum = ReduceSplits(from, args.splits, stride);
    Finish(args, 0, output, &sum);
    if (args.accumulate) AddTo(&sum, old);
    StoreOutputs(out, output, args.outputs, args.aligned, sum);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_STORE_CUH_
