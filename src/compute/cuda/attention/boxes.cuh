// Shared by the attention kernels on Hopper: tensor maps of keys and values for TMA.
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

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_BOXES_CUH_
