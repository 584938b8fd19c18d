// The int8 kernel for any processor, and the twin that the others are tested against.
#include <cstdint>

#include "compute/cpu/matmul/kernels_rows-inl.h"

namespace talon {
namespace {

void Tile(const TileArgs& args) {
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* panel = static_cast<const int8_t*>(args.panel);
  auto* acc = CopySums<int32_t>(args);
  for (int64_t g = 0; g < args.groups; ++g, panel += kWidth * kXGroup) {
    for (int r = 0; r < args.rows; ++r, x += kXGroup) {
      for (int j = 0; j < kWidth; ++j) {
        int32_t sum = 0;
        for (int i = 0; i < kXGroup; ++i) sum += x[i] * panel[j * kXGroup + i];
        acc[r * kWidth + j] += sum;
      }
    }
  }
}

}  // namespace

const MatrixKernel& PortableInt8Kernel() {
  static constexpr MatrixKernel kKernel = RowsInt8Kernel("int8 portable", Tile, /*burn=*/nullptr);
  return kKernel;
}

}  // namespace talon
