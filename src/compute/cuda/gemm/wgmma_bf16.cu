#include "compute/cuda/gemm/wgmma.cuh"

namespace talon::cuda {

const WgmmaKernels& WgmmaKernelsBF16() { return AllWgmmaKernels<__nv_bfloat16>(); }

}  // namespace talon::cuda
