// Conversions between float32 and the element types of weights, activations and KV caches.
#ifndef TALON_COMPUTE_CUDA_DEVICE_CONVERT_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_CONVERT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/check.h"
#include "compute/dtype.h"

namespace talon::cuda {

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Calls f with a value of the C++ type of `dtype`.
template <typename F>
void DispatchFloatType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(__half{});
    case DType::kBF16:
      return f(__nv_bfloat16{});
    default:
      TALON_CHECK(false, "cuda: no kernels for type {}", DTypeName(dtype));
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_CONVERT_CUH_
