// The host's waits for a stream. Where its kernels wait for other ranks (Stream::link), these throw
// DeviceFault when one of them is gone.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_WAIT_H_
#define TALON_COMPUTE_CUDA_RUNTIME_WAIT_H_

#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// For all that is queued.
void Wait(const Stream& stream);
// For what was queued before the event was recorded.
void Wait(const Stream& stream, cudaEvent_t event);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_WAIT_H_
