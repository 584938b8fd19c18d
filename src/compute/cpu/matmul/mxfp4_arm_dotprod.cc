// MXFP4 with sdot (FEAT_DotProd): codes become whole numbers by a table look-up, 16 at a time.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_table.h"
#include "compute/cpu/matmul/mxfp4.h"

namespace talon {
namespace {

template <int kRows>
void Run(const Mxfp4Tile& tile) {
  const int8x16_t table = vld1q_s8(kMxfp4Doubled);
  const float* half_scales = Mxfp4HalfScales();
  const int64_t row_bytes = tile.groups * kMxfp4PackedBytes;
  float32x4_t acc[kRows];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = vdupq_n_f32(0);
  for (int64_t g = 0; g < tile.groups; ++g) {
    const uint8x16_t codes = vld1q_u8(tile.codes + g * kMxfp4GroupBytes);
    const int8x16_t even = vqtbl1q_s8(table, vandq_u8(codes, vdupq_n_u8(15)));
    const int8x16_t odd = vqtbl1q_s8(table, vshrq_n_u8(codes, 4));
    const float scale = half_scales[tile.scales[g]];
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int8_t* x = tile.x + r * row_bytes + g * kMxfp4PackedBytes;
      int32x4_t sum = vdotq_s32(vdupq_n_s32(0), even, vld1q_s8(x));
      sum = vdotq_s32(sum, odd, vld1q_s8(x + kMxfp4GroupBytes));
      sum = vshlq_n_s32(sum, 7);
      sum = vdotq_s32(sum, even, vld1q_s8(x + 2 * kMxfp4GroupBytes));
      sum = vdotq_s32(sum, odd, vld1q_s8(x + 3 * kMxfp4GroupBytes));
      acc[r] = vfmaq_n_f32(acc[r], vcvtq_f32_s32(sum), scale * tile.x_scales[r * tile.groups + g]);
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) tile.sums[r] = vaddvq_f32(acc[r]);
}

}  // namespace

void ArmDotprodMxfp4Kernel(const Mxfp4Tile& tile) {
  switch (tile.rows) {
    case 1:
      return Run<1>(tile);
    case 2:
      return Run<2>(tile);
    case 3:
      return Run<3>(tile);
    default:
      return Run<4>(tile);
  }
}

}  // namespace talon
