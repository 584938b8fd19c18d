#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/testing/trap.h"

namespace talon::cuda {
namespace {

__global__ void TrapKernel() { __trap(); }

}  // namespace

void TrapDevice() {
  TrapKernel<<<1, 1>>>();
  cudaDeviceSynchronize();
}

void FailLaunches(bool fail) {
  injected_launch_error = fail ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

}  // namespace talon::cuda
