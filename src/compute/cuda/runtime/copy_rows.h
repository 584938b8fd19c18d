// Copies of rows whose indices are in device memory.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_COPY_ROWS_H_
#define TALON_COMPUTE_CUDA_RUNTIME_COPY_ROWS_H_

#include <cstdint>

#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// out[to[i]] = x[from[i]] for i < count. Either matrix may be in pinned host memory.
void CopyRows(const Stream& stream, MatrixView x, const int32_t* from, MatrixView out,
              const int32_t* to, int count);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_COPY_ROWS_H_
