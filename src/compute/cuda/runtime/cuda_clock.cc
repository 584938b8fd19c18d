#include "compute/cuda/runtime/cuda_clock.h"

#include <algorithm>
#include <string_view>

namespace talon::cuda {

CudaClock::~CudaClock() {
  for (const Span& span : spans_) {
    cudaEventDestroy(span.begin);
    cudaEventDestroy(span.end);
  }
}

void CudaClock::AddSpans(size_t count) {
  UseDevice(*stream_);
  for (size_t i = 0; i < count; ++i) {
    Span& span = spans_.emplace_back();
    TALON_CUDA_CHECK(cudaEventCreate(&span.begin));
    TALON_CUDA_CHECK(cudaEventCreate(&span.end));
  }
}

void CudaClock::Start() {
  constexpr size_t kFirstSpans = 1 << 14;
  if (spans_.size() < kFirstSpans) AddSpans(kFirstSpans - spans_.size());
  used_ = 0;
  running_ = true;
}

void CudaClock::Begin() {
  if (!running_ || depth_++ > 0) return;
  if (used_ == spans_.size()) AddSpans(spans_.size());
  Span& span = spans_[used_];
  span.stage = stage_;
  TALON_CUDA_CHECK(cudaEventRecord(span.begin, stream_->handle));
}

void CudaClock::End() {
  if (!running_ || --depth_ > 0) return;
  // Called by a destructor, so it does not throw: a failed device is seen at the next wait.
  (void)cudaEventRecord(spans_[used_++].end, stream_->handle);
}

std::vector<DeviceTime> CudaClock::Read() {
  running_ = false;
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream_->handle));
  std::vector<DeviceTime> times;
  for (size_t i = 0; i < used_; ++i) {
    const Span& span = spans_[i];
    float milliseconds = 0;
    TALON_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, span.begin, span.end));
    auto at = std::ranges::find_if(
        times, [&](const DeviceTime& time) { return std::string_view(time.stage) == span.stage; });
    if (at == times.end()) at = times.insert(times.end(), {.stage = span.stage});
    at->seconds += milliseconds * 1e-3;
    at->batches += 1;
  }
  return times;
}

}  // namespace talon::cuda
