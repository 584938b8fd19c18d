#include "compute/cuda/gemm/stream.cuh"

namespace talon::cuda {

std::span<const StreamKernel> StreamKernelsBF16() { return AllStreamKernels<2, __nv_bfloat16>(); }

}  // namespace talon::cuda
