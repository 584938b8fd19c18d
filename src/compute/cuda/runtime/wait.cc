#include "compute/cuda/runtime/wait.h"

#include <thread>

#include "base/clock.h"
#include "compute/cuda/runtime/rank_link.h"

namespace talon::cuda {
namespace {

// CUDA has no waiting with a deadline.
template <typename Query>
void WaitUntilDone(RankLink* link, const Query& query) {
  const Stopwatch watch;
  for (;;) {
    const cudaError_t error = query();
    if (error == cudaSuccess) return;
    if (error != cudaErrorNotReady) DeviceFailed("waiting for the stream", error);
    link->CheckWait(watch.Seconds());
    std::this_thread::yield();
  }
}

}  // namespace

void Wait(const Stream& stream) {
  if (stream.link == nullptr) {
    TALON_CUDA_CHECK(cudaStreamSynchronize(stream.handle));
    return;
  }
  WaitUntilDone(stream.link, [&] { return cudaStreamQuery(stream.handle); });
}

void Wait(const Stream& stream, cudaEvent_t event) {
  if (stream.link == nullptr) {
    TALON_CUDA_CHECK(cudaEventSynchronize(event));
    return;
  }
  WaitUntilDone(stream.link, [&] { return cudaEventQuery(event); });
}

}  // namespace talon::cuda
