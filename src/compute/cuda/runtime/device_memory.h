// Device memory: buffers, scratch that grows, and a ring of pinned host memory for small uploads.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_DEVICE_MEMORY_H_
#define TALON_COMPUTE_CUDA_RUNTIME_DEVICE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Zero-filled. Says how much there is where it does not suffice.
Result<Buffer> AllocateDevice(const Stream& stream, size_t bytes);
// Pinned host memory that kernels can read and write in place, zero-filled.
Result<Buffer> AllocatePinned(size_t bytes);

// Device memory that is as large as the largest request so far. Its address changes when it grows,
// so recordings that hold it must be dropped: see `generation`.
class Scratch {
 public:
  Scratch(const Stream* stream, uint64_t* generation) : stream_(stream), generation_(generation) {}
  // Aborts if the device has no memory left. REQUIRES: nothing is being recorded if it must grow.
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

// Copies from host memory that may be changed as soon as the call returns.
class UploadRing {
 public:
  explicit UploadRing(const Stream* stream);
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Pinned memory to fill; Send copies the first `bytes` of it to the device, in whole units of 16.
  // At most one at a time.
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
