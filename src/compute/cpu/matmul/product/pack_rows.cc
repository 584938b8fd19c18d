#include "compute/cpu/matmul/product/pack_rows.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/matmul/product/run_tasks.h"
#include "compute/cpu/matmul/quantize.h"

namespace talon {
namespace {

void ZeroGroups(const InterleavedRow& row, int64_t first, int64_t last) {
  auto* to = static_cast<uint8_t*>(row.to);
  const size_t bytes = row.group * DTypeSize(row.type);
  for (int64_t g = first; g < last; ++g) std::memset(to + g * row.stride, 0, bytes);
}

// One segment of a row, in the groups that the kernel takes.
void PackSegment(const Product& product, const float* from, int row, int segment,
                 InterleavedRow packed) {
  const MatrixKernel& kernel = product.kernel();
  const WeightSegment& part = product.w.segments()[segment];
  const int64_t runs = kernel.group / kernel.x_group;  // runs in a group
  packed.to = static_cast<uint8_t*>(packed.to) + part.first_group * runs * packed.stride;
  from += part.first_col;
  if (product.HasRowScales()) {
    const RowScale scale = kernel.activation_type == DType::kI8
                               ? ChooseInt8Scale(from, DType::kF32, part.cols)
                               : ChooseF16Scale(from, part.cols);
    *product.RowScale(segment, row) = scale.scale;
    packed.inverse_scale = scale.inverse;
  }
  PackRow(from, DType::kF32, part.cols, packed);
  ZeroGroups(packed, CeilDiv(part.cols, kernel.x_group), part.groups * runs);
}

// Row `row` of the product, or zeros behind the last one.
void PackRowOfTile(const Product& product, int row, int thread) {
  const MatrixKernel& kernel = product.kernel();
  const int within = row % kernel.max_rows;
  const int first_row = row - within;
  const int padded = product.PaddedRows(std::min(kernel.max_rows, product.call.x.rows - first_row));
  const int64_t group_bytes = product.RowGroupBytes();
  const InterleavedRow packed = {.to = product.Tile(first_row) + within * group_bytes,
                                 .stride = padded * group_bytes,
                                 .group = kernel.x_group,
                                 .type = kernel.activation_type,
                                 .flip = static_cast<uint8_t>(kernel.offset_activation ? 0x80 : 0)};
  if (row >= product.call.x.rows) {
    ZeroGroups(packed, 0, product.w.groups() * kernel.group / kernel.x_group);
    return;
  }
  const float* from = product.RowOf(row, thread);
  for (int s = 0; s < product.num_segments(); ++s) PackSegment(product, from, row, s, packed);
}

}  // namespace

// The tiles of a task are read side by side, so the same part of each must not lie in the same
// lines of the first-level cache, whose ways are of 4 KB on x86 and of 16 KB on Arm's servers.
int64_t TileStride(const Product& product) {
  constexpr int64_t kWay = 4 << 10, kLargeWay = 16 << 10;
  const MatrixKernel& kernel = product.kernel();
  const int64_t bytes = kernel.max_rows * product.w.groups() * kernel.group *
                        static_cast<int64_t>(DTypeSize(kernel.activation_type));
  if (bytes < kWay) return RoundUp(bytes, 64);
  const int64_t apart = RoundUp(bytes, kWay) + kWay / 8;
  return apart % kLargeWay < kWay ? apart + kWay : apart;
}

// Rows of a tile share cache lines, so one thread packs all of them, unless groups are lines.
void PackRows(ThreadPool& pool, const Product& product) {
  const int rows = product.PaddedRows(product.call.x.rows);
  const int step = product.RowGroupBytes() < 64 ? product.kernel().max_rows : 1;
  const int64_t elements = int64_t{rows} * product.call.x.cols;
  RunTasks(pool, CeilDiv(rows, step), elements, [&](int64_t task, int thread) {
    const int first = static_cast<int>(task) * step;
    for (int row = first; row < std::min(first + step, rows); ++row) {
      PackRowOfTile(product, row, thread);
    }
  });
}

}  // namespace talon
