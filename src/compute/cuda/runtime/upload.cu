#include <algorithm>
#include <cstdint>

#include "base/math.h"
#include "compute/cuda/runtime/upload.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 32;

__global__ void UploadKernel(const uint4* from, uint4* to, int count) {
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    to[i] = from[i];
  }
  __threadfence();  // the next kernel may read it before its PdlWait
}

__global__ void FenceKernel() {}

}  // namespace

void UploadByKernel(const Stream& stream, void* device, const void* pinned, size_t bytes) {
  Stream in_order = stream;
  in_order.uses_pdl = false;
  const auto count = static_cast<int>(CeilDiv(bytes, sizeof(uint4)));
  const int blocks = std::clamp(CeilDiv(count, kThreads), 1, kMostBlocks);
  Launch(in_order, UploadKernel, blocks, kThreads, 0, static_cast<const uint4*>(pinned),
         static_cast<uint4*>(device), count);
}

void Fence(const Stream& stream) {
  Stream in_order = stream;
  in_order.uses_pdl = false;
  Launch(in_order, FenceKernel, 1, 32, 0);
}

}  // namespace talon::cuda
