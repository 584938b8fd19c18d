#include "compute/cuda/gemm/stream.cuh"

namespace talon::cuda {

std::span<const StreamKernel> StreamKernelsInt8() { return AllStreamKernels<1, __nv_bfloat16>(); }

}  // namespace talon::cuda
