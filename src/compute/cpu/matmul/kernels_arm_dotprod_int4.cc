// int4 with sdot (FEAT_DotProd): 4 outputs x 4 inputs an instruction, one row at a time. A byte
// shifted left, or masked, is 16 times a code.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_rows-inl.h"

namespace talon {
namespace {

constexpr int kVectors = kWidth / 4;

// One group of four outputs.
template <int kRows>
inline __attribute__((always_inline)) void Step(const int8_t* x, const uint8_t* codes,
                                                float32x4_t scales, float32x4_t (&acc)[kRows]) {
  int32x4_t sum[kRows] = {};
  TALON_UNROLL
  for (int i = 0; i < kInt4Parts; i += 2) {
    const uint8x16_t both = vld1q_u8(codes + i / 2 * kInt4PartBytes);
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

struct Rows {
  template <int kRows>
  static void Run(const TileArgs& args) {
    const auto* from = static_cast<const float*>(args.from);
    auto* to = static_cast<float*>(args.to);
    float32x4_t acc[kVectors][kRows];
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) acc[v][r] = vld1q_f32(from + r * kWidth + 4 * v);
    }
    const auto* x = static_cast<const int8_t*>(args.x);
    const auto* group = static_cast<const uint8_t*>(args.panel);
    for (int64_t g = 0; g < args.groups; ++g, x += kRows * kInt4Group, group += kInt4GroupBytes) {
      const auto* scales = reinterpret_cast<const uint16_t*>(group + kInt4ScalesAt);
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const uint32x4_t wide = vshll_n_u16(vld1_u16(scales + 4 * v), 16);
        Step<kRows>(x, group + 16 * v, vreinterpretq_f32_u32(wide), acc[v]);
      }
    }
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) vst1q_f32(to + r * kWidth + 4 * v, acc[v][r]);
    }
  }
};

}  // namespace

const MatrixKernel& ArmDotprodInt4Kernel() {
  static constexpr MatrixKernel kKernel = RowsInt4Kernel("int4 sdot", RowsTile<Rows>);
  return kKernel;
}

}  // namespace talon
