// Rows of a weight to codes, in tiles or, with FP8 activations, in slices, and codes back to bf16.
#ifndef TALON_COMPUTE_CUDA_GEMM_QUANTISED_PACK_H_
#define TALON_COMPUTE_CUDA_GEMM_QUANTISED_PACK_H_

#include <cstdint>

#include "compute/cuda/gemm/quantised/layout.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/matrix.h"

namespace talon::cuda {

// Whether tiles can hold codes of this grid, of matrices of `cols` inputs.
bool CanTile(const QuantGrid& grid, int64_t cols);
// The tiles of such codes.
CodeTiles TilesOfGrid(DType dtype, int64_t group, int64_t cols, bool zeros);

// Rows to pack, a piece of a matrix.
struct RowsToPack {
  const void* data = nullptr;  // [count, cols] in device memory
  DType dtype = DType::kF32;   // kF32, kF16, kBF16
  int64_t first = 0;           // the first one's row of the grid
  int64_t count = 0;
  const QuantGrid* grid = nullptr;  // null: found here, from the values
};

// Device memory for the grids of pieces.
struct GridMemory {
  Buffer scales;
  Buffer zeros;
};

// Queues the packing of rows into those of `weight` from `to` on.
void PackCodes(const Stream& stream, const RowsToPack& rows, int64_t to, const CudaWeight& weight,
               GridMemory* memory);

// Queues the expansion of outputs [first, first + count) to out [count, padded_cols] of bf16,
// without the factors of outputs. REQUIRES: `first` is a multiple of kCodeTileRows.
void ExpandCodes(const Stream& stream, const CudaWeight& weight, int first, int count, void* out);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_QUANTISED_PACK_H_
