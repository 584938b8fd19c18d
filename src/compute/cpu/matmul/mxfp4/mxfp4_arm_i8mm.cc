// MXFP4 with smmla (FEAT_I8MM): the high and the low bytes of 8 inputs by those of two outputs, so
// that a single row fills the instruction, too.
#include <arm_neon.h>

#include <cstring>

#include "compute/cpu/matmul/kernels_rows-inl.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels-inl.h"

namespace talon {
namespace {

constexpr int kRun = 8;
constexpr int kRuns = kMxfp4Group / kRun;  // even inputs, then odd ones
constexpr int kPairs = kMxfp4Outputs / 2;
constexpr int kGroupCodes = kMxfp4Outputs * kMxfp4GroupBytes;

inline __attribute__((always_inline)) uint8x16_t ZipLow(uint8x16_t a, uint8x16_t b) {
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

inline __attribute__((always_inline)) uint8x16_t ZipHigh(uint8x16_t a, uint8x16_t b) {
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

// A group of two outputs: doubled codes, a run of the one output and the same run of the other.
struct OutputPair {
  int8x16_t runs[kRuns];
};

inline __attribute__((always_inline)) OutputPair LoadPair(const uint8_t* first,
                                                          const uint8_t* second) {
  const int8x16_t table = vld1q_s8(kMxfp4Doubled);
  const uint8x16_t a = vld1q_u8(first);
  const uint8x16_t b = vld1q_u8(second);
  const uint8x16_t halves[2] = {ZipLow(a, b), ZipHigh(a, b)};
  OutputPair pair;
  TALON_UNROLL
  for (int i = 0; i < 2; ++i) {
    pair.runs[i] = vqtbl1q_s8(table, vandq_u8(halves[i], vdupq_n_u8(15)));
    pair.runs[2 + i] = vqtbl1q_s8(table, vshrq_n_u8(halves[i], 4));
  }
  return pair;
}

// high * 128 + low of four outputs.
inline __attribute__((always_inline)) int32x4_t Combine(int32x4_t first, int32x4_t second) {
  const int64x2_t a = vreinterpretq_s64_s32(first);
  const int64x2_t b = vreinterpretq_s64_s32(second);
  const int32x4_t high = vreinterpretq_s32_s64(vzip1q_s64(a, b));
  const int32x4_t low = vreinterpretq_s32_s64(vzip2q_s64(a, b));
  return vaddq_s32(low, vshlq_n_s32(high, 7));
}

// Rows are interleaved so that no product waits for another.
template <int kRows>
inline __attribute__((always_inline)) void AddGroup(const Mxfp4Tile& tile,
                                                    const uint8_t* const (&codes)[kMxfp4Outputs],
                                                    int64_t g, float32x4_t scales,
                                                    float32x4_t (&acc)[kRows]) {
  const int64_t at = g * kMxfp4GroupBytes;
  const OutputPair pairs[kPairs] = {LoadPair(codes[0] + at, codes[1] + at),
                                    LoadPair(codes[2] + at, codes[3] + at)};
  const int8_t* x = tile.x + g * kRows * kMxfp4PackedBytes;
  int32x4_t sums[kRows][kPairs];  // high bytes by both outputs, then low bytes by both
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = vdupq_n_s32(0);
  TALON_UNROLL
  for (int i = 0; i < kRuns; ++i) {
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int8x16_t row = vld1q_s8(x + r * kMxfp4PackedBytes + 2 * kRun * i);
      sums[r][0] = vmmlaq_s32(sums[r][0], row, pairs[0].runs[i]);
      sums[r][1] = vmmlaq_s32(sums[r][1], row, pairs[1].runs[i]);
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float32x4_t exact = vcvtq_f32_s32(Combine(sums[r][0], sums[r][1]));
    const float32x4_t factors = vmulq_n_f32(scales, tile.x_scales[g * kRows + r]);
    acc[r] = vfmaq_f32(acc[r], exact, factors);
  }
}

// ScaleOf: exponent bits become the upper halves of floats, then floats.
inline __attribute__((always_inline)) uint16x8_t UpperHalves(uint8x8_t exponent_bits) {
  return vshll_n_u8(exponent_bits, 7);
}

inline __attribute__((always_inline)) float32x4_t AsFloats(uint16x4_t upper_halves) {
  return vreinterpretq_f32_u32(vshll_n_u16(upper_halves, 16));
}

struct Rows {
  template <int kRows>
  static void Run(const Mxfp4Tile& tile) {
    const uint8_t* codes[kMxfp4Outputs];
    for (int i = 0; i < kMxfp4Outputs; ++i) codes[i] = CodesOf(tile, i);
    // The next outputs' codes: a cache line for each group, in the order of the file.
    const uint8_t* next = tile.codes + tile.groups * kGroupCodes;
    float32x4_t acc[kRows];
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = vdupq_n_f32(0);
    int64_t g = 0;
    for (; g + 2 <= tile.groups; g += 2) {
      __builtin_prefetch(next + g * kGroupCodes);
      __builtin_prefetch(next + (g + 1) * kGroupCodes);
      const uint16x8_t scales = UpperHalves(vld1_u8(tile.scales + g * kMxfp4Outputs));
      AddGroup<kRows>(tile, codes, g, AsFloats(vget_low_u16(scales)), acc);
      AddGroup<kRows>(tile, codes, g + 1, AsFloats(vget_high_u16(scales)), acc);
    }
    if (g < tile.groups) {
      uint32_t bytes;
      std::memcpy(&bytes, tile.scales + g * kMxfp4Outputs, sizeof(bytes));
      const uint16x8_t scales = UpperHalves(vcreate_u8(bytes));
      AddGroup<kRows>(tile, codes, g, AsFloats(vget_low_u16(scales)), acc);
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) vst1q_f32(tile.sums + r * kMxfp4Outputs, acc[r]);
  }
};

}  // namespace

const Mxfp4Kernel& ArmI8mmMxfp4Kernel() {
  static constexpr Mxfp4Kernel kKernel = {
      .name = "mxfp4 smmla", .run = kRun, .tile = RowsTile<Rows, Mxfp4Tile>};
  return kKernel;
}

}  // namespace talon
