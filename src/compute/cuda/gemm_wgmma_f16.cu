#include "compute/cuda/gemm_wgmma.cuh"

namespace talon::cuda {

const WgmmaKernels& WgmmaKernelsF16() { return AllWgmmaKernels<__half>(); }

}  // namespace talon::cuda
