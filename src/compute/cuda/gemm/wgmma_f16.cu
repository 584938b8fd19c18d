#include "compute/cuda/gemm/wgmma.cuh"

namespace talon::cuda {

const WgmmaKernels& WgmmaKernelsF16() { return AllWgmmaKernels<__half>(); }

}  // namespace talon::cuda
