// What the tasks of one product share, and the part of one task.
//
// A task has a block of rows and outputs. It takes the weights slice by slice, and all tiles of its
// rows by each: a slice of a panel stays in the first-level cache meanwhile, the block's rows and
// sums in the second-level one.
#ifndef TALON_COMPUTE_CPU_MATMUL_PRODUCT_PRODUCT_H_
#define TALON_COMPUTE_CPU_MATMUL_PRODUCT_PRODUCT_H_

#include <algorithm>
#include <cstdint>

#include "base/math.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/fp8.h"

namespace talon {

// Floats from a thread's row to the next one's: whole cache lines.
inline int64_t ThreadRowSize(int cols) { return RoundUp(int64_t{cols}, 16); }

// Rows and outputs of a task: `outputs` from `first_output` on and, in gated products, as many of
// up.
struct Block {
  int first_row, rows;
  int first_output, outputs;  // outputs: valid ones, the last panel may hold fewer than its width
  // The same in tiles and panels.
  int64_t tiles;
  int64_t panels;       // up's included
  int64_t gate_panels;  // the first ones
  int64_t first_panel, first_up_panel;

  // The weights' panel that is the block's p-th.
  int64_t PanelOf(int64_t p) const {
    return p < gate_panels ? first_panel + p : first_up_panel + p - gate_panels;
  }
};

// A product of as many rows as the scratch memory has room for: everything the tasks share.
struct Product {
  ProductCall call;
  const PackedWeight& w;

  uint8_t* packed = nullptr;     // tiles of activations, as TileArgs has them
  int64_t tile_bytes = 0;        // from tile to tile
  float* row_scales = nullptr;   // [segments][rows]
  float* thread_rows = nullptr;  // a row for each thread where rows change before the product

  int outputs_per_task = 0;
  int64_t output_blocks = 0;
  int64_t row_blocks = 0;
  bool streams = false;  // outputs are stored past the caches
  // Memory of a thread for the sums of its block, [threads][sums_bytes].
  uint8_t* sums = nullptr;
  int64_t sums_bytes = 0;

  const MatrixKernel& kernel() const { return w.kernel(); }
  int num_segments() const { return static_cast<int>(w.segments().size()); }
  float* RowScale(int segment, int row) const {
    return row_scales + int64_t{segment} * call.x.rows + row;
  }
  bool HasRowScales() const {
    return kernel().activation_type == DType::kI8 || kernel().activation_type == DType::kF16;
  }
  int PaddedRows(int rows) const {
    const int unit = kernel().row_unit;
    return RoundUp(rows, unit);
  }
  // Bytes of a row's activations that lie together.
  int64_t RowGroupBytes() const {
    return static_cast<int64_t>(kernel().x_group * DTypeSize(kernel().activation_type));
  }
  bool gated() const { return call.epilogue == Epilogue::kSwiGlu; }
  int halves() const { return gated() ? 2 : 1; }
  // Distance from an output of gate to the same one of up.
  int half_outputs() const { return w.rows() / halves(); }
  // Groups of a slice.
  int64_t SliceGroups() const {
    return std::max<int64_t>(1, kernel().limits.slice_bytes / kernel().panel_group_bytes);
  }
  bool ChangesRows() const { return call.norm != nullptr || w.fp8_activations(); }
  // A row of the left operand, after the norm and the rounding if there are any.
  const float* RowOf(int row, int thread) const {
    const float* x = call.x.data + row * call.x.stride;
    if (!ChangesRows()) return x;
    float* to = thread_rows + thread * ThreadRowSize(call.x.cols);
    if (call.norm != nullptr) {
      RmsNormRow(x, call.x.cols, call.norm, call.epsilon, to);
    } else {
      std::copy_n(x, call.x.cols, to);
    }
    if (w.fp8_activations()) {
      for (const WeightSegment& segment : w.segments()) {
        RoundActivationsToFp8({to + segment.first_col, static_cast<size_t>(segment.cols)});
      }
    }
    return to;
  }
  // REQUIRES: a tile begins with the row.
  uint8_t* Tile(int first_row) const { return packed + first_row / kernel().max_rows * tile_bytes; }
  int64_t TileSums() const { return int64_t{kernel().max_rows} * kernel().width; }
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_PRODUCT_PRODUCT_H_
