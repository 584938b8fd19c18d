// The CUDA backend: NVIDIA GPUs of compute capability 8.0 and newer. Ops are queued on one stream.
// A build without nvcc has a stub in its place, whose NewCudaBackend returns an error.
#ifndef TALON_COMPUTE_CUDA_CUDA_BACKEND_H_
#define TALON_COMPUTE_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/ranks/ranks.h"

namespace talon {

struct CudaOptions {
  int device = 0;      // as CUDA counts them
  bool graphs = true;  // passes of a shape seen before are replayed as CUDA graphs
  // Backends of this process, or under MPS, that use the device at the same time. Each takes its
  // share of the multiprocessors, because blocks that wait for each other must all be resident.
  int sharers = 1;
  // Queries of a tile of attention: 16, 32, 64, 128 or 256, for tests. Where there are no such
  // tiles, and for 0, those that take least time.
  int attention_tile = 0;
};

// GPUs that are visible; 0 without a driver or in a build without CUDA.
int NumCudaDevices();

// Fails if there is no such device, or if its driver, capability or memory does not suffice.
Result<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options);

// Lets the GPUs of several ranks exchange rows by NCCL, queued like other ops, before anything else
// is done with ranks. All of them call it at the same time, with the same `wanted`. Returns why
// they go on through host memory instead; "": they do not. InvalidArgument if `backend` is not a
// CUDA backend; `ranks` must outlive it.
Result<std::string> LinkGpus(Backend* backend, Ranks* ranks, bool wanted);

// Bytes per second at which a kernel reads device memory that is not in the L2 cache.
// InvalidArgument if `backend` is not a CUDA backend.
Result<double> MeasureCudaReadBandwidth(Backend* backend);

// bf16 operations per second of the tensor cores alone; 0: not known of such a device.
// InvalidArgument if `backend` is not a CUDA backend.
Result<double> MeasureCudaMatrixPeak(Backend* backend);

}  // namespace talon

#endif  // TALON_COMPUTE_CUDA_CUDA_BACKEND_H_
