// What attention's kernels on Hopper share: how the copy engine finds keys and values, and what
// orders its work and the tensor cores' with that of threads.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_

#include "compute/cuda/device/hopper.cuh"

namespace talon::cuda {

// How the copy engine finds the blocks of keys and values, where it can.
struct KvTensorMaps {
  CUtensorMap keys;
  CUtensorMap values;
  bool exist;
};

// How far scores may rise above the one that weights are relative to before the sums are brought
// to a new one: weights stay below 2^8, and most steps rescale nothing.
inline constexpr float kScoreSlack = 8;

// What this thread did with shared memory before comes before what the tensor cores and the copy
// engine do with it after.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The barrier's phase does not end before all copies that this thread has started are there.
__device__ __forceinline__ void CpAsyncMbarrierArrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_
