#ifndef TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_
#define TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Bytes per second of a kernel that only reads, from a buffer much larger than the caches: the best
// of several.
Result<double> ReadBandwidth(const Stream& stream);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_READ_BANDWIDTH_H_
