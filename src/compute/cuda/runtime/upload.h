// Uploads of small records from pinned host memory by a kernel: cudaMemcpyAsync would add a
// synchronisation with the kernels before and after it.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_
#define TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_

#include <cstddef>

#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Runs without PDL overlap: it starts after everything before it and ends before anything after it
// starts. REQUIRES: 16-byte aligned pointers and memory for whole units of 16 bytes on both sides.
void UploadByKernel(const Stream& stream, void* device, const void* pinned, size_t bytes);

// Kernels launched after it see all writes before it, even with loads that precede their PdlWait.
void Fence(const Stream& stream);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_UPLOAD_H_
