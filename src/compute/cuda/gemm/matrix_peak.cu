#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/matrix_peak.h"
#include "compute/cuda/gemm/wgmma_layout.h"
#include "compute/cuda/gemm/wgmma_mma.cuh"

namespace talon::cuda {
namespace {

constexpr int kGroups = 2;
constexpr int kThreads = 128 * kGroups;
constexpr int kOutputs = 256;
constexpr int kRounds = 10000;

// A random sign and mantissa, values around one.
[[maybe_unused]] __device__ void FillRandomly(uint16_t* values, int count) {
  uint32_t random = blockIdx.x * kThreads + threadIdx.x + 1;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    random = random * 1664525u + 1013904223u;
    values[i] = static_cast<uint16_t>((random >> 16 & 0x807fu) | 0x3f00u);
  }
}

__global__ void __launch_bounds__(kThreads) ProductsKernel(float* sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ alignas(kRingAlignment) uint16_t x[kGroups * kGroupRows * kWgmmaSliceCols];
  __shared__ alignas(kRingAlignment) uint16_t w[kOutputs * kWgmmaSliceCols];
  FillRandomly(x, kGroups * kGroupRows * kWgmmaSliceCols);
  FillRandomly(w, kOutputs * kWgmmaSliceCols);
  FenceProxyAsync();
  __syncthreads();
  const int group = threadIdx.x / 128;
  const uint64_t rows = MatrixDescriptor(SharedAddress(x) + group * kGroupRows * kSliceRowBytes);
  const uint64_t weights = MatrixDescriptor(SharedAddress(w));
  float sums[kGroupRows * kOutputs / 128] = {};
  for (int round = 0; round < kRounds; ++round) {
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < kWgmmaSliceCols / kWgmmaStepCols; ++step) {
      Wgmma<__nv_bfloat16>(sums, rows + step * kDescriptorStep, weights + step * kDescriptorStep);
    }
    WgmmaCommitGroup();
    WgmmaWaitGroup<1>();
  }
  WgmmaWaitGroup<0>();
  PinAccumulators(sums);
  if (sums[0] == 12345.0f) *sink = sums[0];  // so that the compiler cannot drop the products
#endif
}

}  // namespace

double MatrixPeak(const Stream& stream) {
  if (!stream.uses_pdl) return 0;  // both since Hopper
  cudaEvent_t begin, end;
  TALON_CUDA_CHECK(cudaEventCreate(&begin));
  TALON_CUDA_CHECK(cudaEventCreate(&end));
  TALON_CUDA_CHECK(cudaEventRecord(begin, stream.handle));
  ProductsKernel<<<stream.multiprocessors, kThreads, 0, stream.handle>>>(nullptr);
  TALON_CUDA_CHECK(cudaEventRecord(end, stream.handle));
  TALON_CUDA_CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  TALON_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const double products = double{kRounds} * kGroups * stream.multiprocessors;
  return products * 2 * kGroupRows * kOutputs * kWgmmaSliceCols / (milliseconds * 1e-3);
}

}  // namespace talon::cuda
