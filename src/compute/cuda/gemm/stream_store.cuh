// Epilogue of the weight-streaming GEMM: reduction over slices, bias, accumulation into `out`.
// Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_STORE_CUH_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_STORE_CUH_

#include "compute/cuda/gemm/stream.h"

namespace talon::cuda {

__device__ __forceinline__ float4 Add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__device__ __forceinline__ float4 WithBias(const StreamArgs& args, int output, float4 sum) {
  if (args.bias == nullptr) return sum;
  const float* bias = args.bias + output;
  return Add(sum, {bias[0], bias[1], bias[2], bias[3]});
}

// Adds the bias and, if accumulating, the old value of `out`, and stores up to four outputs of a
// row.
__device__ __forceinline__ void StoreOutputs(const StreamArgs& args, int row, int output,
                                             float4 sum) {
  float* out = args.out + row * args.out_stride + output;
  if (args.aligned && output + 4 <= args.outputs) {
    sum = WithBias(args, output, sum);
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

// Reduces a tile's accumulators in shared memory, [slices][rows][outputs], over the slices.
template <typename Tile>
__device__ __forceinline__ float4 ReduceSlices(const float* acc, int row, int output) {
  float4 sum = *reinterpret_cast<const float4*>(acc + Tile::AccumulatorIndex(0, row, output));
#pragma unroll
  for (int slice = 1; slice < Tile::kSlices; ++slice) {
    sum = Add(sum,
              *reinterpret_cast<const float4*>(acc + Tile::AccumulatorIndex(slice, row, output)));
  }
  return sum;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_STORE_CUH_
