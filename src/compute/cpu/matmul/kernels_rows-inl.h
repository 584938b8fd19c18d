// The shape that the int8 and int4 kernels for one row at a time share: 16 outputs, four inputs of
// a row together, tiles of up to four rows.
//
// Everything here is local to the including file, which may be compiled for a special instruction
// set (kernels_table.h).
#ifndef TALON_COMPUTE_CPU_MATMUL_KERNELS_ROWS_INL_H_
#define TALON_COMPUTE_CPU_MATMUL_KERNELS_ROWS_INL_H_

#include <cstring>

#include "compute/cpu/matmul/kernels_table.h"
#include "compute/dtype.h"
#include "compute/int4.h"

namespace talon {
namespace {

constexpr int kWidth = 16;
constexpr int kXGroup = 4;
constexpr int kMaxRows = 4;

// A group of an int4 panel (kernels_table.h): codes, then scales.
constexpr int kInt4Parts = kInt4Group / kXGroup;
constexpr int kInt4PartBytes = kWidth * kXGroup;  // holds two parts
constexpr int kInt4ScalesAt = kWidth * kInt4Group / 2;
constexpr int kInt4GroupBytes = kInt4ScalesAt + 2 * kWidth;

// For kernels that add in memory: where accumulators go, with those that the tile begins with.
template <typename Sum>
Sum* CopySums(const TileArgs& args) {
  auto* to = static_cast<Sum*>(args.to);
  std::memmove(to, args.from, sizeof(Sum) * args.rows * kWidth);
  return to;
}

// MatrixKernel::tile, or the like, of a kernel whose Run<n>(args) takes n rows.
template <typename Rows, typename Args = TileArgs>
void RowsTile(const Args& args) {
  switch (args.rows) {
    case 1:
      return Rows::template Run<1>(args);
    case 2:
      return Rows::template Run<2>(args);
    case 3:
      return Rows::template Run<3>(args);
    default:
      return Rows::template Run<4>(args);
  }
}

constexpr MatrixKernel RowsInt8Kernel(const char* name, void (*tile)(const TileArgs&),
                                      int64_t (*burn)(int64_t)) {
  return {.name = name,
          .weight_type = DType::kI8,
          .activation_type = DType::kI8,
          .sum_type = DType::kI32,
          .width = kWidth,
          .group = kXGroup,
          .x_group = kXGroup,
          .panel_group_bytes = kWidth * kXGroup,
          .max_rows = kMaxRows,
          .row_unit = 1,
          .offset_activation = false,
          .tile = tile,
          .burn = burn};
}

constexpr MatrixKernel RowsInt4Kernel(const char* name, void (*tile)(const TileArgs&)) {
  return {.name = name,
          .weight_type = DType::kI4,
          .activation_type = DType::kI8,
          .sum_type = DType::kF32,
          .width = kWidth,
          .group = kInt4Group,
          .x_group = kXGroup,
          .panel_group_bytes = kInt4GroupBytes,
          .max_rows = kMaxRows,
          .row_unit = 1,
          .offset_activation = false,
          .tile = tile,
          .burn = nullptr};
}

}  // namespace
}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_KERNELS_ROWS_INL_H_
