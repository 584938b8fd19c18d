// Shared by the attention kernels on Hopper: tensor maps of keys and values for TMA, and the fences
// that order the async proxy (TMA, wgmma) with the threads' own accesses.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_

#include "compute/cuda/device/hopper.cuh"

namespace talon::cuda {

// Tensor maps of the KV blocks, if TMA can load them.
struct KvTensorMaps {
  CUtensorMap keys;
  CUtensorMap values;
  bool exist;
};

// Orders this thread's earlier accesses to shared memory before later ones by the async proxy
// (wgmma and TMA).
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_
