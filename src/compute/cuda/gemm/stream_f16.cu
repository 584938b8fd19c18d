#include "compute/cuda/gemm/stream.cuh"

namespace talon::cuda {

std::span<const StreamKernel> StreamKernelsF16() { return AllStreamKernels<2, __half>(); }

}  // namespace talon::cuda
