#ifndef TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_
#define TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Measured read bandwidth in bytes per second: the best of several runs of a kernel that only
// reads, over a buffer much larger than the caches.
Result<double> ReadBandwidth(const Stream& stream);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_
