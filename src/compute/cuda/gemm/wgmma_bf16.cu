#include "compute/cuda/gemm/wgmma.cuh"

namespace talon::cuda {

WgmmaKernels WgmmaKernelsBF16() { return AllWgmmaKernels<__nv_bfloat16, kWgmmaOutputs>(); }

}  // namespace talon::cuda
