// A block's dynamic shared memory. One declaration for all kernels, since all name the same memory.
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
