// The state that all parts of the CUDA backend share: the stream, the clock, uploads, and whether
// the host has waited for the device.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_CONTEXT_H_
#define TALON_COMPUTE_CUDA_RUNTIME_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/cuda/runtime/cuda_clock.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

class Context {
 public:
  explicit Context(const Stream& stream) : stream_(stream) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Stream& stream() const { return stream_; }
  void SetLink(RankLink* link) { stream_.link = link; }
  CudaClock* clock() { return &clock_; }
  UploadRing* uploads() { return &uploads_; }
  // Counts the changes of scratch addresses: CUDA graphs captured before the last one are invalid.
  uint64_t* generation() { return &generation_; }

  void Synchronize();
  // Copies of either direction, after what is queued. Both wait.
  void Copy(void* to, const void* from, size_t bytes);
  // Results were queued for host memory: `arrived` is false until the next wait.
  void ExpectResults() { arrived_ = false; }
  bool arrived() const { return arrived_; }

  // Index arrays, one behind the other, in device memory until the next upload.
  const int32_t* UploadIndices(std::span<const int32_t> first,
                               std::span<const int32_t> second = {});

 private:
  Stream stream_;
  uint64_t generation_ = 0;
  CudaClock clock_{&stream_};
  UploadRing uploads_{&stream_};
  Scratch indices_{&stream_, &generation_};
  bool arrived_ = true;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_CONTEXT_H_
