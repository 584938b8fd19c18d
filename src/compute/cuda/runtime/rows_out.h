// Where kernels write rows, whatever their type and padding.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_
#define TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_

#include <cstdint>

#include "base/math.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Output rows of a kernel: float32 of a MatrixView, or 16-bit or FP8 with zeros in columns [cols,
// padded_cols).
struct RowsOut {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;  // elements
  int cols = 0;
  int padded_cols = 0;
  float* scales = nullptr;  // FP8: [padded_cols / kFp8Group, scale_stride]
  int64_t scale_stride = 0;
};
// The scale_stride of this many rows: GEMMs read the scales of up to 128 rows at once.
constexpr int64_t Fp8ScaleStride(int rows) { return RoundUp(int64_t{rows}, 128); }

inline RowsOut OutOf(const MatrixView& x) {
  return {x.data, DType::kF32, x.stride, x.cols, x.cols};
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_ROWS_OUT_H_
