#include "compute/cuda/attention/attention.h"
#include "compute/cuda/attention/launch.cuh"

namespace talon::cuda {

void LaunchAttentionBF16(const Stream& stream, const AttentionArgs& args) {
  LaunchForType<__nv_bfloat16>(stream, args);
}

// Without sm_90a in the build or the device the kernel is empty or missing; the real kernel has 64
// accumulators and as many scores in registers.
bool HasWarpgroupAttention() {
  static const bool has = [] {
    const auto kernel = &WarpgroupKernel<WarpgroupConfig<__nv_bfloat16, 128, 2>>;
    cudaFuncAttributes attributes;
    const auto error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) cudaGetLastError();  // clears the error for the next call
    return error == cudaSuccess && attributes.numRegs >= 128;
  }();
  return has;
}

}  // namespace talon::cuda
