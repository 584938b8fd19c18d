// GEMM with Hopper's wgmma: out = x * w^T for 16-bit weights, or FP8 weights and rows, and any
// number of rows.
//
// TMA streams weights and x through shared memory, the weights of the first stages before PdlWait.
// The order of accumulation depends on the shape of the weights alone, so that the bits of an
// output row depend on that row of x and the weights alone.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_H_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/cuda/gemm/wgmma_layout.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/rows_out.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Kernel arguments besides the tensor maps of weights and x.
struct WgmmaArgs {
  // [outputs] factors of the products (SwiGLU: of both halves) or null.
  const float* scales = nullptr;          // multiply whole sums
  const float* segment_scales = nullptr;  // FP8: multiply the sums of each segment
  // FP8: factors of the products of a slice.
  const float* row_scales = nullptr;  // [slices, row_stride]
  int64_t row_stride = 0;
  const float* group_scales = nullptr;  // [slices, group_stride] by output, or null
  int64_t group_stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  float* out = nullptr;         // [rows, out_stride]
  int64_t out_stride = 0;
  int rows = 0;
  int outputs = 0;     // SwiGLU: outputs of each half
  int stage_rows = 0;  // rows of x per slice (StageRows)
  int row_tiles = 0;
  int items = 0;         // row tiles times output tiles
  int slices = 0;        // over all inputs (K)
  int stage_slices = 1;  // slices per stage
  int stage_bytes = 0;
  int segments = 1;              // segments of the inputs
  int splits = 1;                // blocks of a tile, each with a segment: 1 or all segments
  int groups = 1;                // consumer warpgroups per block, of 64 rows each
  int ring = 0;                  // stages in shared memory
  float* partials = nullptr;     // split-K accumulators, [items][splits][rows][outputs of a tile]
  int32_t* arrivals = nullptr;   // [items], zero before and after a launch
  bool constant_weights = true;  // may be read before PdlWait
  bool accumulate = false;
  bool aligned = false;  // out's rows start at multiples of 16 bytes
  // SwiGLU epilogue: a tile is half gate rows, half the up rows `outputs` further down; silu(gate)
  // * up goes to operand[rows, operand_stride] in the weights' type (FP8: bf16), zeros to columns
  // [outputs, padded_outputs).
  bool swiglu = false;
  int up_offset = 0;  // from a gate's scale and bias to those of up
  void* operand = nullptr;
  int64_t operand_stride = 0;
  int padded_outputs = 0;
  // Not null: the operand is rounded to FP8; [padded_outputs / kFp8Group, operand_scale_stride].
  float* operand_scales = nullptr;
  int64_t operand_scale_stride = 0;
};

using WgmmaFunction = void (*)(CUtensorMap, CUtensorMap, WgmmaArgs);

// Kernels, the outputs of the tile of each, and the kernel that adds segments.
struct WgmmaKernels {
  std::span<const int> outputs;
  std::span<const WgmmaFunction> functions;
  WgmmaFunction segmented;
};
WgmmaKernels WgmmaKernelsBF16();
WgmmaKernels WgmmaKernelsF16();
WgmmaKernels WgmmaKernelsFp8();
WgmmaKernels WgmmaKernelsFp8Groups();

// The weight of a GEMM: all of a CudaWeight, or a part of one that was just expanded.
struct WgmmaWeight {
  const void* data = nullptr;  // [rows, padded_cols]; kF8E4M3: [slices, rows, kFp8SliceCols]
  DType dtype = DType::kBF16;  // or kF16, kF8E4M3
  int rows = 0;
  int whole_rows = 0;  // those of all ranks
  int padded_cols = 0;
  const float* scales = nullptr;        // [rows] factors of the outputs, or null
  const float* group_scales = nullptr;  // kF8E4M3: [slices, group_stride], or null
  int64_t group_stride = 0;
  int up_offset = 0;     // SwiGLU: from a gate's scale and bias to those of up
  bool constant = true;  // may be read before PdlWait
};

class WgmmaGemm {
 public:
  struct Call {
    const void* x = nullptr;  // [rows, x_stride], in the weight's type
    int rows = 0;
    int64_t x_stride = 0;             // elements
    const float* x_scales = nullptr;  // kF8E4M3: [slices, x_scale_stride]
    int64_t x_scale_stride = 0;       // Fp8ScaleStride(rows)
    WgmmaWeight w;
    const float* bias = nullptr;  // [w.rows] or null
    MatrixView out;
    bool accumulate = false;
    // SwiGLU epilogue instead of `out`, if its data is not null: rows of w's type (FP8: bf16), or
    // FP8 where CanRoundSwiGlu.
    RowsOut swiglu;
    bool gates = false;  // the outputs are gate and up, whether or not SwiGLU is in the epilogue
  };

  // Returns null where the device, its driver or this build lacks support for the kernels.
  static Result<std::unique_ptr<WgmmaGemm>> Create(const Stream& stream);

  WgmmaPlan Plan(const Call& call) const;
  // Whether the SwiGLU epilogue with such a weight can round its rows to FP8.
  bool CanRoundSwiGlu(const WgmmaWeight& w) const;
  // REQUIRES: out.cols (SwiGLU: twice swiglu.cols) is w.rows; swiglu has rows aligned to 4 bytes
  // and, with groups' scales, columns a multiple of 4.
  void Run(const Call& call) const { Run(call, Plan(call)); }
  void Run(const Call& call, const WgmmaPlan& plan) const;

  // For the accumulators of split-K, of kernels that run one after the other on the stream.
  float* partials() const { return static_cast<float*>(partials_.data()); }
  int32_t* arrivals() const { return static_cast<int32_t*>(arrivals_.data()); }

 private:
  explicit WgmmaGemm(const Stream& stream) : stream_(stream) {}
  int SegmentsOf(const Call& call) const;
  WgmmaArgs ArgsOf(const Call& call, const WgmmaPlan& plan) const;

  Stream stream_;
  Buffer partials_;
  Buffer arrivals_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_H_
