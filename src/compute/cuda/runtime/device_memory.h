// Device memory: buffers, growing scratch, and a ring of pinned host memory for small uploads.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_DEVICE_MEMORY_H_
#define TALON_COMPUTE_CUDA_RUNTIME_DEVICE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Allocates zero-filled device memory. The error of a failure reports how much is free.
Result<Buffer> AllocateDevice(const Stream& stream, size_t bytes);
// Allocates zero-filled pinned host memory, mapped so that kernels can access it.
Result<Buffer> AllocatePinned(size_t bytes);

// Device memory as large as the largest request so far. Its address changes when it grows, so CUDA
// graphs that captured it must be dropped: see `generation`.
class Scratch {
 public:
  Scratch(const Stream* stream, uint64_t* generation) : stream_(stream), generation_(generation) {}
  // Aborts if the device is out of memory. REQUIRES: no CUDA graph capture is active if it must
  // grow.
  void* Get(size_t bytes);
  template <typename T>
  T* GetAs(size_t count) {
    return static_cast<T*>(Get(count * sizeof(T)));
  }

 private:
  const Stream* stream_;
  uint64_t* generation_;
  Buffer buffer_;
};

// Uploads from host memory that the caller may overwrite as soon as the call returns.
class UploadRing {
 public:
  explicit UploadRing(const Stream* stream);
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Begin returns pinned memory to fill; Send copies its first `bytes` to the device, in whole
  // units of 16. At most one upload is open at a time.
  void* Begin(size_t bytes);
  void Send(void* device, size_t bytes);

 private:
  struct Slot {
    Buffer memory;
    cudaEvent_t sent = nullptr;
  };
  const Stream* stream_;
  std::array<Slot, 8> slots_;
  size_t current_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_DEVICE_MEMORY_H_
