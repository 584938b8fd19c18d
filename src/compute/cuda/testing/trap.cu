#include "compute/cuda/testing/trap.h"

namespace talon::cuda {
namespace {

__global__ void TrapKernel() { __trap(); }

}  // namespace

void TrapDevice() {
  TrapKernel<<<1, 1>>>();
  cudaDeviceSynchronize();
}

}  // namespace talon::cuda
