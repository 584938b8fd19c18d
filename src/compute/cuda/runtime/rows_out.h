// Where kernels write rows, whatever their type and padding.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_
#define TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_

#include <cstdint>

#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Output rows of a kernel: float32 of a MatrixView, or 16-bit with zeros in columns [cols,
// padded_cols).
struct RowsOut {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;  // elements
  int cols = 0;
  int padded_cols = 0;
};
inline RowsOut OutOf(const MatrixView& x) {
  return {x.data, DType::kF32, x.stride, x.cols, x.cols};
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_
