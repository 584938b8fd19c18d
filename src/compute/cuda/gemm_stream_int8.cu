#include "compute/cuda/gemm_stream.cuh"

namespace talon::cuda {

std::span<const StreamKernel> StreamKernelsInt8() { return AllStreamKernels<1, __nv_bfloat16>(); }

}  // namespace talon::cuda
