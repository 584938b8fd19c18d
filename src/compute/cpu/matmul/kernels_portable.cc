// The int8 kernel for any processor, and the twin that the others are tested against.
#include <cstdint>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {
namespace {

constexpr int kWidth = 16;
constexpr int kGroup = 4;

void Tile(const TileArgs& args) {
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* panel = static_cast<const int8_t*>(args.panel);
  auto* acc = static_cast<int32_t*>(args.acc);
  for (int64_t g = 0; g < args.groups; ++g, panel += kWidth * kGroup) {
    for (int r = 0; r < args.rows; ++r, x += kGroup) {
      for (int j = 0; j < kWidth; ++j) {
        int32_t sum = 0;
        for (int i = 0; i < kGroup; ++i) sum += x[i] * panel[j * kGroup + i];
        acc[r * kWidth + j] += sum;
      }
    }
  }
}

}  // namespace

const MatrixKernel& PortableInt8Kernel() {
  static const MatrixKernel kernel = {.name = "int8 portable",
                                      .weight_type = DType::kI8,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kI32,
                                      .width = kWidth,
                                      .group = kGroup,
                                      .x_group = kGroup,
                                      .panel_group_bytes = kWidth * kGroup,
                                      .max_rows = 4,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Tile,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
