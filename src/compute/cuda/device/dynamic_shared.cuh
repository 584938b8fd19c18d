// The dynamic shared memory of a block: one declaration for all kernels of a translation unit,
// because `extern __shared__` arrays alias each other.
#ifndef TALON_COMPUTE_CUDA_DEVICE_DYNAMIC_SHARED_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_DYNAMIC_SHARED_CUH_

#include <cstdint>

namespace talon::cuda {

__device__ __forceinline__ void* DynamicShared() {
  extern __shared__ __align__(128) uint8_t dynamic_shared[];
  return dynamic_shared;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_DYNAMIC_SHARED_CUH_
