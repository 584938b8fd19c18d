// int4 with sdot (FEAT_DotProd): 4 outputs x 4 inputs an instruction, one row at a time. A byte
// shifted left, or masked, is 16 times a code.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_table.h"
#include "compute/int4.h"

namespace talon {
namespace {

constexpr int kWidth = 16;
constexpr int kXGroup = 4;
constexpr int kVectors = kWidth / 4;
constexpr int kParts = kInt4Group / kXGroup;
constexpr int kPartBytes = kWidth * kXGroup;  // holds two parts
constexpr int kScalesAt = kWidth * kInt4Group / 2;
constexpr int kGroupBytes = kScalesAt + 2 * kWidth;

// One group of four outputs.
template <int kRows>
inline __attribute__((always_inline)) void Step(const int8_t* x, const uint8_t* codes,
                                                float32x4_t scales, float32x4_t (&acc)[kRows]) {
  int32x4_t sum[kRows] = {};
  TALON_UNROLL
  for (int i = 0; i < kParts; i += 2) {
    const uint8x16_t both = vld1q_u8(codes + i / 2 * kPartBytes);
    const int8x16_t parts[2] = {vreinterpretq_s8_u8(vshlq_n_u8(both, 4)),
                                vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(0xF0)))};
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int8_t* four = x + ((i + half) * kRows + r) * kXGroup;
        const int32x4_t row = vld1q_dup_s32(reinterpret_cast<const int32_t*>(four));
        sum[r] = vdotq_s32(sum[r], parts[half], vreinterpretq_s8_s32(row));
      }
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(sum[r]), scales);
}

template <int kRows>
void Rows(const TileArgs& args) {
  auto* out = static_cast<float*>(args.acc);
  float32x4_t acc[kVectors][kRows];
  TALON_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) acc[v][r] = vld1q_f32(out + r * kWidth + 4 * v);
  }
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* group = static_cast<const uint8_t*>(args.panel);
  for (int64_t g = 0; g < args.groups; ++g, x += kRows * kInt4Group, group += kGroupBytes) {
    const auto* scales = reinterpret_cast<const uint16_t*>(group + kScalesAt);
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const uint32x4_t wide = vshll_n_u16(vld1_u16(scales + 4 * v), 16);
      Step<kRows>(x, group + 16 * v, vreinterpretq_f32_u32(wide), acc[v]);
    }
  }
  TALON_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) vst1q_f32(out + r * kWidth + 4 * v, acc[v][r]);
  }
}

void Tile(const TileArgs& args) {
  switch (args.rows) {
    case 1:
      return Rows<1>(args);
    case 2:
      return Rows<2>(args);
    case 3:
      return Rows<3>(args);
    default:
      return Rows<4>(args);
  }
}

}  // namespace

const MatrixKernel& ArmDotprodInt4Kernel() {
  static const MatrixKernel kernel = {.name = "int4 sdot",
                                      .weight_type = DType::kI4,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kF32,
                                      .width = kWidth,
                                      .group = kInt4Group,
                                      .x_group = kXGroup,
                                      .panel_group_bytes = kGroupBytes,
                                      .max_rows = 4,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Tile,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
