// Weight-streaming GEMM: out = x * w^T for few rows, bound by reading w once. Also the GEMM of the
// deterministic mode for any number of rows: with tile kTall the bits of an output row do not
// depend on the number of rows.
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
  // kPersistent: the first `gates` of twice as many weight rows are the gate, a multiple of
  // kRunRows; silu(gate) * up goes to operand[rows, operand_stride] in the weights' type instead of
  // to `out`.
  int tiles = 0;
  int gates = 0;
  void* operand = nullptr;
  int64_t operand_stride = 0;
  HeadsOut heads;  // QKV epilogue
  bool accumulate = false;
  bool aligned = false;  // out's rows start at multiples of 16 bytes
};

// kTall: 128 outputs, two blocks per SM. kDeep: 128 outputs, one block per SM with more stages.
// kWide: 32 outputs and long pieces of their rows, one block per SM; for GEMMs of so few outputs
// that each tile has its own block and split-K is not needed. kPersistent: the kWide tile with a
// SwiGLU epilogue, several tiles per block. kTall exists for all weight types, the others for
// 16-bit weights and up to 16 rows.
enum class StreamTileKind { kDeep, kTall, kWide, kPersistent };

struct StreamKernel {
  StreamTileKind tile = StreamTileKind::kTall;
  int rows = 0;     // per block
  int outputs = 0;  // per block
  int stage_cols = 0;
  int threads = 0;
  size_t shared_bytes = 0;
  void (*kernel)(StreamArgs) = nullptr;
};

// The kernels for weights of a type (kBF16, kF16, kI8), by tile, then ascending rows.
std::span<const StreamKernel> StreamKernels(DType weight_type);
std::span<const StreamKernel> StreamKernelsBF16();
std::span<const StreamKernel> StreamKernelsF16();
std::span<const StreamKernel> StreamKernelsInt8();

// The kernel of `tile` with the smallest block that holds `rows` rows, or the one with the most
// rows.
const StreamKernel& ChooseStreamKernel(DType weight_type, StreamTileKind tile, int rows);

// Called once per process and device, before the first launch. Skips kernels that need more shared
// memory than `shared_memory`.
void PrepareStreamKernels(int shared_memory);

void LaunchStream(const Stream& stream, const StreamKernel& kernel, const StreamArgs& args);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_H_
