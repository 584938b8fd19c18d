// The CUDA backend: NVIDIA GPUs of compute capability 8.0 and newer. Ops are queued on one stream.
// A build without nvcc has a stub in its place, whose NewCudaBackend says so.
#ifndef TALON_COMPUTE_CUDA_CUDA_BACKEND_H_
#define TALON_COMPUTE_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "base/status.h"
#include "compute/backend.h"

namespace talon {

struct CudaOptions {
  int device = 0;              // as CUDA counts them
  bool deterministic = false;  // rows have the same bits whatever the batch
};

// Fails if there is no such device, or its driver, capability or memory does not do.
Result<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options);

// Bytes per second that a kernel reads of device memory that no cache holds. `backend` must be
// the one of this header, else InvalidArgument.
Result<double> MeasureCudaReadBandwidth(Backend* backend);

}  // namespace talon

#endif  // TALON_COMPUTE_CUDA_CUDA_BACKEND_H_
