// Attention without tensor cores, in float32: any type of the cache and any head_dim.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_GENERIC_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_GENERIC_CUH_

#include "compute/cuda/attention/tile.cuh"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"

namespace talon::cuda {

// Needs neither items nor scratch.
void LaunchGenericAttention(const Stream& stream, DType dtype, const AttentionArgs& args);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_GENERIC_CUH_
