// MXFP4 with sdot (FEAT_DotProd): codes become whole numbers by a table look-up, 16 at a time.
#include <arm_neon.h>

#include <cstring>

#include "compute/cpu/matmul/kernels_rows-inl.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels-inl.h"

namespace talon {
namespace {

// ScaleOf four outputs.
inline float32x4_t LoadScales(const uint8_t* from) {
  uint32_t bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  const uint16x8_t wide = vmovl_u8(vcreate_u8(bytes));
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 23));
}

// The sums of four vectors' lanes.
inline int32x4_t SumLanes(const int32x4_t (&v)[kMxfp4Outputs]) {
  return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

struct Rows {
  template <int kRows>
  static void Run(const Mxfp4Tile& tile) {
    const int8x16_t table = vld1q_s8(kMxfp4Doubled);
    const uint8_t* codes[kMxfp4Outputs];
    for (int i = 0; i < kMxfp4Outputs; ++i) codes[i] = CodesOf(tile, i);
    float32x4_t acc[kRows];
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = vdupq_n_f32(0);
    for (int64_t g = 0; g < tile.groups; ++g) {
      int8x16_t even[kMxfp4Outputs], odd[kMxfp4Outputs];
      TALON_UNROLL
      for (int i = 0; i < kMxfp4Outputs; ++i) {
        // The next outputs' codes at the same place, a cache line for four groups.
        if (g % 4 == i)
          __builtin_prefetch(codes[i] + (kMxfp4Outputs * tile.groups + g) * kMxfp4GroupBytes);
        const uint8x16_t both = vld1q_u8(codes[i] + g * kMxfp4GroupBytes);
        even[i] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
        odd[i] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
      }
      const float32x4_t scales = LoadScales(tile.scales + g * kMxfp4Outputs);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = g * kRows + r;
        const int8x16x4_t row = vld1q_s8_x4(tile.x + at * kMxfp4PackedBytes);
        int32x4_t high[kMxfp4Outputs], low[kMxfp4Outputs];
        TALON_UNROLL
        for (int i = 0; i < kMxfp4Outputs; ++i) {
          high[i] = vdotq_s32(vdupq_n_s32(0), even[i], row.val[0]);
          low[i] = vdotq_s32(vdupq_n_s32(0), even[i], row.val[2]);
          high[i] = vdotq_s32(high[i], odd[i], row.val[1]);
          low[i] = vdotq_s32(low[i], odd[i], row.val[3]);
        }
        const int32x4_t all = vmlaq_n_s32(SumLanes(low), SumLanes(high), 128);
        const float32x4_t factors = vmulq_n_f32(scales, tile.x_scales[at]);
        acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(all), factors);
      }
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) vst1q_f32(tile.sums + r * kMxfp4Outputs, acc[r]);
  }
};

}  // namespace

const Mxfp4Kernel& ArmDotprodMxfp4Kernel() {
  static constexpr Mxfp4Kernel kKernel = {
      .name = "mxfp4 sdot", .run = kMxfp4Group, .tile = RowsTile<Rows, Mxfp4Tile>};
  return kKernel;
}

}  // namespace talon
