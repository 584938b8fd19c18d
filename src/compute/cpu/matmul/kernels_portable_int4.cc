// The int4 kernel for any processor, and the twin that the others are tested against.
#include <cmath>
#include <cstdint>

#include "compute/cpu/matmul/kernels_rows-inl.h"
#include "compute/dtype.h"

namespace talon {
namespace {

// 16 times the sum of codes times activations over one group. `x` and `codes`: the row's and the
// output's first; `x_stride`: from one x_group of the row to the next.
int32_t GroupSum(const int8_t* x, int64_t x_stride, const uint8_t* codes) {
  int32_t sum = 0;
  for (int k = 0; k < kInt4Group; k += 2 * kXGroup, codes += kWidth * kXGroup) {
    for (int i = 0; i < kXGroup; ++i) {
      sum += x[i] * static_cast<int8_t>(codes[i] << 4);
      sum += x[x_stride + i] * static_cast<int8_t>(codes[i] & 0xF0);
    }
    x += 2 * x_stride;
  }
  return sum;
}

void Tile(const TileArgs& args) {
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* panel = static_cast<const uint8_t*>(args.panel);
  auto* acc = CopySums<float>(args);
  for (int64_t g = 0; g < args.groups; ++g, panel += kInt4GroupBytes) {
    const auto* scales = reinterpret_cast<const uint16_t*>(panel + kInt4ScalesAt);
    for (int r = 0; r < args.rows; ++r) {
      for (int j = 0; j < kWidth; ++j) {
        const int32_t sum = GroupSum(x + r * kXGroup, args.rows * kXGroup, panel + j * kXGroup);
        float& to = acc[r * kWidth + j];
        to = std::fma(static_cast<float>(sum), F32FromBF16(scales[j]), to);
      }
    }
    x += args.rows * kInt4Group;
  }
}

}  // namespace

const MatrixKernel& PortableInt4Kernel() {
  static constexpr MatrixKernel kKernel = RowsInt4Kernel("int4 portable", Tile);
  return kKernel;
}

}  // namespace talon
