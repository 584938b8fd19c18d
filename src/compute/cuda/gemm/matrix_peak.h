#ifndef TALON_COMPUTE_CUDA_GEMM_MATRIX_PEAK_H_
#define TALON_COMPUTE_CUDA_GEMM_MATRIX_PEAK_H_

#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Measured bf16 operations per second of the tensor cores: products of random matrices that stay in
// shared memory, for long enough that the clocks settle. 0 before Hopper.
double MatrixPeak(const Stream& stream);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_MATRIX_PEAK_H_
