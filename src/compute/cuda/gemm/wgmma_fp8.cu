#include "compute/cuda/gemm/wgmma.cuh"

namespace talon::cuda {

WgmmaKernels WgmmaKernelsFp8() { return AllWgmmaKernels<Fp8Operand<false>, kFp8Outputs>(); }
WgmmaKernels WgmmaKernelsFp8Groups() {
  return AllWgmmaKernels<Fp8Operand<true>, kFp8GroupOutputs>();
}

}  // namespace talon::cuda
