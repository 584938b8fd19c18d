// DeviceClock by CUDA events around each batch of queued ops. A batch that waits for its launch
// counts from when its first event reached the device, a few microseconds too early.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_CUDA_CLOCK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_CUDA_CLOCK_H_

#include <cstddef>
#include <vector>

#include "compute/cuda/runtime/launch.h"
#include "compute/device_clock.h"

namespace talon::cuda {

class CudaClock : public DeviceClock {
 public:
  explicit CudaClock(const Stream* stream) : stream_(stream) {}
  ~CudaClock() override;
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;

  void Start() override;
  void SetStage(const char* stage) override { stage_ = stage; }
  std::vector<DeviceTime> Read() override;  // and stops

  // Ops queued during its lifetime are one batch. Batches inside a batch are part of it.
  class Batch {
   public:
    explicit Batch(CudaClock* clock) : clock_(clock) { clock_->Begin(); }
    ~Batch() { clock_->End(); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    CudaClock* clock_;
  };

 private:
  struct Span {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    const char* stage = nullptr;
  };
  void Begin();
  void End();
  void AddSpans(size_t count);

  const Stream* stream_;
  bool running_ = false;
  int depth_ = 0;
  const char* stage_ = "";
  std::vector<Span> spans_;
  size_t used_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_CUDA_CLOCK_H_
