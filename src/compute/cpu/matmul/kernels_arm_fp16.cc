// f16 with fmlal (FEAT_FHM): activations rounded to f16, products exact, float accumulators.
//
// Converting weights to f32 is too slow: fcvtl does one vector a cycle on current cores, which does
// not keep up with memory. So activations come down to the weights' type instead, as they do for
// bf16; their rows are scaled (ChooseF16Scale), so that none overflows.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {
namespace {

constexpr int kWidth = 32;
constexpr int kMaxRows = 4;

// kEights * 8 outputs of the panel.
template <int kRows, int kEights>
void Columns(const TileArgs& args, int first_output) {
  const auto* from = static_cast<const float*>(args.from) + first_output;
  auto* to = static_cast<float*>(args.to) + first_output;
  float32x4_t acc[kRows][2 * kEights];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < 2 * kEights; ++v) acc[r][v] = vld1q_f32(from + r * kWidth + 4 * v);
  }
  const auto* x = static_cast<const float16_t*>(args.x);
  const auto* w = static_cast<const float16_t*>(args.panel) + first_output;
  const auto* next = static_cast<const uint8_t*>(args.next) + first_output * sizeof(float16_t);
  const int64_t next_step = args.next_step;
  for (int64_t k = 0; k < args.groups; ++k, x += kRows, w += kWidth) {
    __builtin_prefetch(next, 0, 2);
    next += next_step;
    float16x8_t weights[kEights];
    TALON_UNROLL
    for (int e = 0; e < kEights; ++e) weights[e] = vld1q_f16(w + 8 * e);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float16x8_t row = vld1q_dup_f16(x + r);
      TALON_UNROLL
      for (int e = 0; e < kEights; ++e) {
        acc[r][2 * e] = vfmlalq_low_f16(acc[r][2 * e], weights[e], row);
        acc[r][2 * e + 1] = vfmlalq_high_f16(acc[r][2 * e + 1], weights[e], row);
      }
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < 2 * kEights; ++v) vst1q_f32(to + r * kWidth + 4 * v, acc[r][v]);
  }
}

template <int kRows, int kEights>
void Rows(const TileArgs& args) {
  for (int j = 0; j < kWidth; j += 8 * kEights) Columns<kRows, kEights>(args, j);
}

void Tile(const TileArgs& args) {
  switch (args.rows) {
    case 1:
      return Rows<1, 4>(args);
    case 2:
      return Rows<2, 4>(args);
    case 3:
      return Rows<3, 2>(args);
    default:
      return Rows<4, 2>(args);
  }
}

}  // namespace

const MatrixKernel& ArmFp16Kernel() {
  static const MatrixKernel kernel = {.name = "f16 fmlal",
                                      .weight_type = DType::kF16,
                                      .activation_type = DType::kF16,
                                      .sum_type = DType::kF32,
                                      .width = kWidth,
                                      .group = 1,
                                      .x_group = 1,
                                      .panel_group_bytes = kWidth * 2,
                                      .max_rows = kMaxRows,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Tile,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
