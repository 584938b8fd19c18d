#include "compute/host/host_kv_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "compute/host/host_memory.h"

namespace talon {
namespace {

void ChooseInRow(const float* row, const ColumnChoice& choice, std::vector<int32_t>* out) {
  const auto value_of = [row](int32_t column) {
    return std::isnan(row[column]) ? -INFINITY : row[column];
  };
  const bool has_values = std::any_of(row + choice.begin, row + choice.end,
                                      [](float value) { return value > -INFINITY; });
  std::vector<int32_t> columns(choice.end - choice.begin);
  std::iota(columns.begin(), columns.end(), choice.begin);
  std::nth_element(columns.begin(), columns.begin() + choice.count - 1, columns.end(),
                   [&](int32_t a, int32_t b) {
                     const float value_a = value_of(a), value_b = value_of(b);
                     return value_a != value_b ? value_a > value_b : a < b;
                   });
  std::sort(columns.begin(), columns.begin() + choice.count);
  if (!has_values) columns[0] = -1;
  out->insert(out->end(), columns.begin(), columns.begin() + choice.count);
}

}  // namespace

void HostKvOps::CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                          int first) {
  const KvShape& shape = from.shape;
  const int lists = shape.num_layers * shape.kv_heads;
  const int count = static_cast<int>(blocks.size()) / lists;
  TALON_CHECK(blocks.size() == static_cast<size_t>(lists) * count);
  TALON_CHECK(first + count <= to.shape.num_blocks);
  const auto copy = [&](const void* source, int block, void* target, int copy, int head) {
    CopyVectors(shape, VectorAt(shape, source, nullptr, int64_t{block} * shape.block_size, head),
                VectorAt(to.shape, target, nullptr, int64_t{copy} * shape.block_size, head),
                shape.block_size);
  };
  for (int list = 0; list < lists; ++list) {
    const int head = list % shape.kv_heads;
    const KvLayer& source = from.layers[list / shape.kv_heads];
    const KvLayer& target = to.layers[list / shape.kv_heads];
    for (int i = 0; i < count; ++i) {
      const int32_t block = blocks[static_cast<size_t>(list) * count + i];
      copy(source.k_blocks, block, target.k_blocks, first + i, head);
      copy(source.v_blocks, block, target.v_blocks, first + i, head);
    }
  }
}

void HostKvOps::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  chosen_.clear();
  for (const ColumnChoice& choice : choices) {
    TALON_CHECK(0 <= choice.begin && choice.end <= x.cols && 0 <= choice.count &&
                choice.count <= choice.end - choice.begin);
    if (choice.count == 0) continue;
    for (int r = 0; r < x.rows; ++r) ChooseInRow(x.data + r * x.stride, choice, &chosen_);
  }
}

}  // namespace talon
