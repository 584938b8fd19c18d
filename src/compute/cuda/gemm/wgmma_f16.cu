#include "compute/cuda/gemm/wgmma.cuh"

namespace talon::cuda {

WgmmaKernels WgmmaKernelsF16() { return AllWgmmaKernels<__half, kWgmmaOutputs>(); }

}  // namespace talon::cuda
