#include <algorithm>

#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/read_bandwidth.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;

// Combines what it reads, so that the compiler cannot drop the loads.
__global__ void ReadKernel(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += kUnroll * step) {
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      values[u] = i + u * step < count ? __ldcs(data + i + u * step) : uint4{};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum ^= values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
    }
  }
  if (sum == 0x9e3779b9u) *sink = sum;
}

}  // namespace

Result<double> ReadBandwidth(const Stream& stream) {
  constexpr size_t kBytes = size_t{4} << 30;
  constexpr int kRepeats = 8;
  TALON_ASSIGN_OR_RETURN(const Buffer buffer, AllocateDevice(stream, kBytes + 256));
  auto* bytes = static_cast<uint8_t*>(buffer.data());
  TALON_CUDA_CHECK(cudaMemsetAsync(bytes, 0x5a, kBytes, stream.handle));
  cudaEvent_t begin, end;
  TALON_CUDA_CHECK(cudaEventCreate(&begin));
  TALON_CUDA_CHECK(cudaEventCreate(&end));
  float best = 1e9f;
  for (int i = 0; i < kRepeats; ++i) {
    TALON_CUDA_CHECK(cudaEventRecord(begin, stream.handle));
    ReadKernel<<<8 * stream.multiprocessors, kThreads, 0, stream.handle>>>(
        reinterpret_cast<const uint4*>(bytes), kBytes / sizeof(uint4),
        reinterpret_cast<uint32_t*>(bytes + kBytes));
    TALON_CUDA_CHECK(cudaEventRecord(end, stream.handle));
    TALON_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    TALON_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0) best = std::min(best, milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return kBytes / (best * 1e-3);
}

}  // namespace talon::cuda
