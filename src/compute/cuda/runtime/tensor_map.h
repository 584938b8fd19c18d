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

// A matrix cut into slices of 128 bytes of every row. A box has the same rows of `box_slices`
// consecutive slices, slice after slice; where the matrix consists of several parts of `rows` rows
// each, the same rows of every part follow each other within a slice. Each row of a box has 128
// bytes and is stored with the 128-byte swizzle.
struct SlicedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // or kF16, kF8E4M3
  int64_t rows = 0;            // rows of a part
  int parts = 1;
  int64_t slices = 0;
  int64_t stride = 0;        // elements from row to row, of a multiple of 16 bytes
  int64_t slice_stride = 0;  // the same from slice to slice; 0: those of a row follow each other
  int box_rows = 0;          // rows of a part in a box
  int box_slices = 1;
};
inline constexpr int kMapSliceBytes = 128;

bool HasTensorMaps();  // whether the driver supports them
// Return false where the driver does not support tensor maps, or not for such a matrix. Rows and
// columns of a box that lie outside become zeros.
bool MakeTensorMap(const BoxedMatrix& matrix, CUtensorMap* map);
bool MakeTensorMap(const SlicedMatrix& matrix, CUtensorMap* map);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_TENSOR_MAP_H_
