// Weight-streaming GEMM with mma.sync: out = x * w^T for int8 weights, and for all where wgmma does
// not exist. The bits of an output row do not depend on the number of rows.
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_H_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_H_

#include <cstdint>
#include <span>

#include "compute/cuda/gemm/heads.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"

namespace talon::cuda {

// Kernel arguments. Inputs are processed in stages of the kernel's tile.
struct StreamArgs {
  const void* x = nullptr;  // [rows, x_stride], bf16 or f16, zero from the weight's last column on
  int64_t x_row_bytes = 0;
  const void* weights = nullptr;  // [outputs, weight_row_bytes]
  int64_t weight_row_bytes = 0;
  const float* scales = nullptr;  // [groups, scale_stride], int8 only
  int64_t scale_stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  float* out = nullptr;         // [rows, out_stride]
  int64_t out_stride = 0;
  float* partials = nullptr;    // split-K accumulators, [blocks][rows of a tile][outputs of a tile]
  int32_t* arrivals = nullptr;  // [tiles * row blocks], zero before and after a launch
  int rows = 0;
  int outputs = 0;
  int stages = 0;
  int splits = 1;
  HeadsOut heads;  // QKV epilogue
  bool accumulate = false;
  bool aligned = false;  // out's rows start at multiples of 16 bytes
};

// A tile of 128 outputs, two blocks per SM.
struct StreamKernel {
  int rows = 0;     // per block
  int outputs = 0;  // per block
  int stage_cols = 0;
  int threads = 0;
  size_t shared_bytes = 0;
  void (*kernel)(StreamArgs) = nullptr;
};

// The kernels for weights of a type (kBF16, kF16, kI8), by ascending rows.
std::span<const StreamKernel> StreamKernels(DType weight_type);
std::span<const StreamKernel> StreamKernelsBF16();
std::span<const StreamKernel> StreamKernelsF16();
std::span<const StreamKernel> StreamKernelsInt8();

// The kernel with the smallest block that holds `rows` rows, or the one with the most rows.
const StreamKernel& ChooseStreamKernel(DType weight_type, int rows);

// Called once per process and device, before the first launch. Skips kernels that need more shared
// memory than `shared_memory`.
void PrepareStreamKernels(int shared_memory);

void LaunchStream(const Stream& stream, const StreamKernel& kernel, const StreamArgs& args);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_H_
