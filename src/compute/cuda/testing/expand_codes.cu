#include "compute/cuda/device/kv_codes.cuh"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/testing/expand_codes.h"

namespace talon::cuda {
namespace {

// Sixteen codes a thread.
template <typename T>
__global__ void ExpandKernel(uint32_t scale, ExpandedCodes* expanded) {
  const uint32_t first = threadIdx.x * 0x10101010u + 0x03020100u;
  const uint4 codes = {first, first + 0x04040404u, first + 0x08080808u, first + 0x0C0C0C0Cu};
  expanded[threadIdx.x] = ExpandCodes<T>(codes, scale);
}

}  // namespace

std::vector<uint16_t> ExpandAllCodes(DType dtype, uint8_t scale) {
  std::vector<uint16_t> numbers(256);
  const size_t bytes = numbers.size() * sizeof(uint16_t);
  void* memory = nullptr;
  TALON_CUDA_CHECK(cudaMalloc(&memory, bytes));
  const auto kernel = dtype == DType::kI8 ? ExpandKernel<Int8Code> : ExpandKernel<Fp8Code>;
  kernel<<<1, 16>>>(scale, static_cast<ExpandedCodes*>(memory));
  TALON_CUDA_CHECK(cudaMemcpy(numbers.data(), memory, bytes, cudaMemcpyDefault));
  TALON_CUDA_CHECK(cudaFree(memory));
  return numbers;
}

}  // namespace talon::cuda
