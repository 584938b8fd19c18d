// Copies of small records from pinned host memory, by a kernel: a copy engine would have to be
// waited for on both sides.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_
#define TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_

#include <cstddef>

#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Nothing before it still runs when it starts, and nothing after it starts before it is done.
// REQUIRES: 16-byte aligned, memory for whole units of 16 bytes on both sides.
void UploadByKernel(const Stream& stream, void* device, const void* pinned, size_t bytes);

// Kernels launched after it find all that was written before it, even what they read before they
// wait for their inputs.
void Fence(const Stream& stream);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_
