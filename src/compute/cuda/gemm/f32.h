// GEMM with float32 weights, exact to float32 rounding (no TF32). Each output is accumulated by one
// warp in a fixed order, so its bits do not depend on the number of rows.
#ifndef TALON_COMPUTE_CUDA_GEMM_F32_H_
#define TALON_COMPUTE_CUDA_GEMM_F32_H_

#include <cstdint>

#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

struct F32Args {
  const float* x = nullptr;        // [rows, x_stride]
  int64_t x_stride = 0;            // a multiple of 4, like cols; both pointers are 16-byte aligned
  const float* weights = nullptr;  // [out.cols, cols]
  int cols = 0;
  const float* bias = nullptr;  // [out.cols] or null
  MatrixView out;
  bool accumulate = false;
};

void LaunchF32(const Stream& stream, const F32Args& args);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_F32_H_
