// TMA descriptors (CUtensorMap) of matrices in device memory.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_
#define TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "compute/dtype.h"

namespace talon::cuda {

// A row-major matrix of 16-bit elements in device memory, not owned, and the box that a TMA load
// fetches from it.
struct BoxedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // or kF16
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements, a multiple of 8
  int box_rows = 0;
  int box_cols = 64;  // rows of 128 bytes, stored with the 128-byte swizzle that wgmma reads
};

// Returns false where the driver does not support tensor maps, or not for such a matrix.
bool MakeTensorMap(const BoxedMatrix& matrix, CUtensorMap* map);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_
