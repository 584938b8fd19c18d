// int4 with smmla (FEAT_I8MM): 2 rows x 8 inputs by 2 outputs x 8 inputs an instruction. A byte
// shifted left, or masked, is 16 times a code, so two instructions unpack 32 weights.
//
// Sums start at the bits of 1.5 * 2^23: an integer of less than 2^22 added to them is that integer
// in the low bits of the mantissa, so a subtraction makes it a float, four times as fast as the
// instruction that converts. The largest sum is 32 * 128 * 127 < 2^19.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_table.h"
#include "compute/int4.h"

namespace talon {
namespace {

constexpr int kWidth = 8;
constexpr int kMaxRows = 8;
constexpr int kPairs = kWidth / 2;  // pairs of outputs
constexpr int kXGroup = 8;
constexpr int kParts = kInt4Group / kXGroup;
constexpr int kHalfCodes = kWidth * kXGroup;  // bytes: the codes of half the inputs of a group
constexpr int kScalesAt = 2 * kHalfCodes;
constexpr int kGroupBytes = kScalesAt + 2 * kWidth;
constexpr int kCacheLine = 64;

// Table for vqtbl1q that moves a pair's scales to the upper halves of four floats.
constexpr uint8_t kNone = 0xFF;
constexpr uint8_t kScaleBytes[kPairs][16] = {
    {kNone, kNone, 0, 1, kNone, kNone, 2, 3, kNone, kNone, 0, 1, kNone, kNone, 2, 3},
    {kNone, kNone, 4, 5, kNone, kNone, 6, 7, kNone, kNone, 4, 5, kNone, kNone, 6, 7},
    {kNone, kNone, 8, 9, kNone, kNone, 10, 11, kNone, kNone, 8, 9, kNone, kNone, 10, 11},
    {kNone, kNone, 12, 13, kNone, kNone, 14, 15, kNone, kNone, 12, 13, kNone, kNone, 14, 15}};

// Two outputs of one group.
struct OutputPair {
  int8x16_t codes[kParts];  // times 16
  float32x4_t scales;       // as in an accumulator: both, for the one row and for the other
};

inline __attribute__((always_inline)) OutputPair Unpack(const uint8_t* group, int pair) {
  const uint8x16_t mask = vdupq_n_u8(0xF0);
  const uint8x16_t first = vld1q_u8(group + 16 * pair);
  const uint8x16_t second = vld1q_u8(group + kHalfCodes + 16 * pair);
  const uint8x16_t scales = vld1q_u8(group + kScalesAt);
  return {.codes = {vreinterpretq_s8_u8(vshlq_n_u8(first, 4)),
                    vreinterpretq_s8_u8(vandq_u8(first, mask)),
                    vreinterpretq_s8_u8(vshlq_n_u8(second, 4)),
                    vreinterpretq_s8_u8(vandq_u8(second, mask))},
          .scales = vreinterpretq_f32_u8(vqtbl1q_u8(scales, vld1q_u8(kScaleBytes[pair])))};
}

// One group. Two pairs of outputs at a time for all rows: what is unpacked stays in registers, and
// no product waits for the one before it.
template <int kRowPairs>
inline __attribute__((always_inline)) void Step(const int8_t* x, const uint8_t* group,
                                                float32x4_t (&acc)[kRowPairs][kPairs]) {
  const float32x4_t start = vdupq_n_f32(12582912.0f);
  TALON_UNROLL
  for (int q = 0; q < kPairs; q += 2) {
    const OutputPair outputs[2] = {Unpack(group, q), Unpack(group, q + 1)};
    if (kRowPairs > 2) asm volatile("" : "+r"(x));  // loads rows again: there is no room for them
    int32x4_t sums[kRowPairs][2];
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) sums[p][0] = sums[p][1] = vreinterpretq_s32_f32(start);
    TALON_UNROLL
    for (int i = 0; i < kParts; ++i) {
      TALON_UNROLL
      for (int p = 0; p < kRowPairs; ++p) {
        const int8x16_t rows = vld1q_s8(x + 16 * (i * kRowPairs + p));
        sums[p][0] = vmmlaq_s32(sums[p][0], rows, outputs[0].codes[i]);
        sums[p][1] = vmmlaq_s32(sums[p][1], rows, outputs[1].codes[i]);
      }
    }
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) {
      TALON_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(sums[p][c]), start);
        acc[p][q + c] = vfmaq_f32(acc[p][q + c], sum, outputs[c].scales);
      }
    }
  }
}

template <int kRowPairs>
void Rows(const TileArgs& args) {
  auto* out = static_cast<float*>(args.acc);
  float32x4_t acc[kRowPairs][kPairs];
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) {
    TALON_UNROLL
    for (int q = 0; q < kPairs; ++q) acc[p][q] = vld1q_f32(out + 4 * (p * kPairs + q));
  }
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* group = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g) {
    for (int64_t i = 0; i < args.next_step; i += kCacheLine) __builtin_prefetch(next + i, 0, 2);
    next += args.next_step;
    Step<kRowPairs>(x, group, acc);
    x += 2 * kRowPairs * kInt4Group;
    group += kGroupBytes;
  }
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) {
    TALON_UNROLL
    for (int q = 0; q < kPairs; ++q) vst1q_f32(out + 4 * (p * kPairs + q), acc[p][q]);
  }
}

void Tile(const TileArgs& args) {
  switch (args.rows) {
    case 2:
      return Rows<1>(args);
    case 4:
      return Rows<2>(args);
    case 6:
      return Rows<3>(args);
    default:
      return Rows<4>(args);
  }
}

}  // namespace

const MatrixKernel& ArmI8mmInt4Kernel() {
  static const MatrixKernel kernel = {.name = "int4 smmla",
                                      .weight_type = DType::kI4,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kF32,
                                      .width = kWidth,
                                      .group = kInt4Group,
                                      .x_group = kXGroup,
                                      .panel_group_bytes = kGroupBytes,
                                      .max_rows = kMaxRows,
                                      .row_unit = 2,
                                      .offset_activation = false,
                                      .tile = Tile,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
