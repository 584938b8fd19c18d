#include "compute/cuda/runtime/device_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/contain.h"
#include "compute/cuda/runtime/upload.h"
#include "compute/cuda/runtime/wait.h"

namespace talon::cuda {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

Status OutOfMemory(size_t bytes, cudaError_t error) {
  cudaGetLastError();  // clears the error for the next call
  if (error != cudaErrorMemoryAllocation) {
    return Internal("cuda: allocating {} bytes: {}", bytes, cudaGetErrorString(error));
  }
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return ResourceExhausted(
      "cuda: need {:.2f} GiB of device memory, {:.2f} of {:.2f} GiB are free; a smaller KV pool, "
      "--weights int8, or fewer processes on the card help",
      bytes / kGiB, free / kGiB, total / kGiB);
}

}  // namespace

Result<Buffer> AllocateDevice(const Stream& stream, size_t bytes) {
  UseDevice(stream);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (error != cudaSuccess) return OutOfMemory(bytes, error);
  Buffer buffer(data, bytes, [](void* p) { cudaFree(p); });
  TALON_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream.handle));
  return buffer;
}

Result<Buffer> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocMapped | cudaHostAllocPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return ResourceExhausted("cuda: cannot pin {:.2f} GiB of host memory: {}", bytes / kGiB,
                             cudaGetErrorString(error));
  }
  std::memset(data, 0, bytes);
  return Buffer(data, bytes, [](void* p) { cudaFreeHost(p); });
}

void* Scratch::Get(size_t bytes) {
  if (bytes > buffer_.bytes() || buffer_.data() == nullptr) {
    Wait(*stream_);
    buffer_ = Buffer();
    buffer_ = MemoryOrThrow(AllocateDevice(*stream_, std::bit_ceil(std::max<size_t>(bytes, 256))));
    ++*generation_;
  }
  return buffer_.data();
}

UploadRing::UploadRing(const Stream* stream) : stream_(stream) {
  for (Slot& slot : slots_) {
    TALON_CUDA_CHECK(cudaEventCreateWithFlags(&slot.sent, cudaEventDisableTiming));
  }
}

UploadRing::~UploadRing() {
  for (const Slot& slot : slots_) cudaEventDestroy(slot.sent);
}

void* UploadRing::Begin(size_t bytes) {
  UseDevice(*stream_);
  current_ = (current_ + 1) % slots_.size();
  Slot& slot = slots_[current_];
  Wait(*stream_, slot.sent);
  if (slot.memory.bytes() < bytes) {
    slot.memory = MemoryOrThrow(AllocatePinned(std::bit_ceil(std::max<size_t>(bytes, 4096))));
  }
  return slot.memory.data();
}

void UploadRing::Send(void* device, size_t bytes) {
  constexpr size_t kSmall = 64 * 1024;
  const Slot& slot = slots_[current_];
  if (bytes <= kSmall) {
    UploadByKernel(*stream_, device, slot.memory.data(), bytes);
  } else {
    TALON_CUDA_CHECK(cudaMemcpyAsync(device, slot.memory.data(), bytes, cudaMemcpyHostToDevice,
                                     stream_->handle));
  }
  TALON_CUDA_CHECK(cudaEventRecord(slot.sent, stream_->handle));
}

}  // namespace talon::cuda
