// Rows of FP8 activations: codes, and a scale for each group of inputs. Included by CUDA sources
// only.
#ifndef TALON_COMPUTE_CUDA_DEVICE_FP8_ROWS_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_FP8_ROWS_CUH_

#include <cuda_fp8.h>

#include <cstdint>

#include "compute/fp8.h"

namespace talon::cuda {

// Codes of two values.
__device__ __forceinline__ uint32_t Fp8CodesOf(float a, float b, float inverse) {
  return __nv_cvt_float2_to_fp8x2({a * inverse, b * inverse}, __NV_SATFINITE, __NV_E4M3);
}

// Rounds the group of a warp, four values of each lane: codes to `codes`, the first lane's place,
// the scale to `scale`.
__device__ __forceinline__ void StoreFp8Group(float4 x, uint8_t* codes, float* scale) {
  const auto bits = [](float value) { return __float_as_uint(value) & 0x7fffffff; };
  const uint32_t largest = max(max(bits(x.x), bits(x.y)), max(bits(x.z), bits(x.w)));
  const Fp8Scale of_group = Fp8ScaleOf(__reduce_max_sync(0xffffffffu, largest));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  reinterpret_cast<uint32_t*>(codes)[lane] =
      Fp8CodesOf(x.x, x.y, of_group.inverse) | Fp8CodesOf(x.z, x.w, of_group.inverse) << 16;
  if (lane == 0) *scale = of_group.scale;
}

// A pair of bf16: the bits of the larger magnitude as a float's, and its codes.
__device__ __forceinline__ uint32_t LargerOfPair(uint32_t pair) {
  return max(pair << 16 & 0x7fffffff, pair & 0x7fff0000);
}
__device__ __forceinline__ uint32_t Fp8CodesOfPair(uint32_t pair, float inverse) {
  return Fp8CodesOf(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000), inverse);
}

// Rounds the group of half a warp, eight bf16 of each lane: codes to `codes`, the lane's own place.
__device__ __forceinline__ void StoreFp8Group(uint4 pairs, uint8_t* codes, float* scale) {
  const uint32_t largest = max(max(LargerOfPair(pairs.x), LargerOfPair(pairs.y)),
                               max(LargerOfPair(pairs.z), LargerOfPair(pairs.w)));
  const uint32_t lanes = threadIdx.x % 32 < 16 ? 0x0000ffff : 0xffff0000;
  const Fp8Scale of_group = Fp8ScaleOf(__reduce_max_sync(lanes, largest));
  const auto codes_of = [&](uint32_t a, uint32_t b) {
    return Fp8CodesOfPair(a, of_group.inverse) | Fp8CodesOfPair(b, of_group.inverse) << 16;
  };
  *reinterpret_cast<uint2*>(codes) = {codes_of(pairs.x, pairs.y), codes_of(pairs.z, pairs.w)};
  if (threadIdx.x % 16 == 0) *scale = of_group.scale;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_FP8_ROWS_CUH_
