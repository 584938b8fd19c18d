// How long the device worked, by stage (Backend::StartClock): events around whatever is queued.
// Work that had to wait for its launch counts from when its first event reached the device, a few
// microseconds too early.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_BUSY_CLOCK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_BUSY_CLOCK_H_

#include <cstddef>
#include <vector>

#include "compute/backend.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

class BusyClock {
 public:
  explicit BusyClock(const Stream* stream) : stream_(stream) {}
  ~BusyClock();
  BusyClock(const BusyClock&) = delete;
  BusyClock& operator=(const BusyClock&) = delete;

  void Start();
  void SetStage(const char* stage) { stage_ = stage; }
  std::vector<DeviceTime> Read();  // and stops

  // Work is queued as long as this lives. Batches inside a batch are part of it.
  class Batch {
   public:
    explicit Batch(BusyClock* clock) : clock_(clock) { clock_->Begin(); }
    ~Batch() { clock_->End(); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    BusyClock* clock_;
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

#endif  // TALON_COMPUTE_CUDA_RUNTIME_BUSY_CLOCK_H_
