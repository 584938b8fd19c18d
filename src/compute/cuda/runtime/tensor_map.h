// Tensor maps: what the copy engine of sm_90 must know of a matrix to fetch boxes of it.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_
#define TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_

#include <cuda.h>

#include <cstdint>

#include "compute/dtype.h"

namespace talon::cuda {

// A row-major matrix of 16-bit elements in device memory, not owned, and the boxes wanted of it.
struct BoxedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // or kF16
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements, a multiple of 8
  int box_rows = 0;
  int box_cols = 64;  // rows of 128 bytes, permuted as the tensor cores want them
};

// False where the driver knows no tensor maps, or not of such a matrix.
bool MakeTensorMap(const BoxedMatrix& matrix, CUtensorMap* map);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_
