// int4 with smmla (FEAT_I8MM): 2 rows x 8 inputs by 2 outputs x 8 inputs an instruction. A byte
// shifted left, or masked, is 16 times a code, so two instructions unpack 32 weights. Where tiles
// share a slice, that and the scales' way into a vector are done once for all of them.
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
constexpr float kStart = 12582912.0f;

// Table for vqtbl1q that moves a pair's scales to the upper halves of four floats.
constexpr uint8_t kNone = 0xFF;
constexpr uint8_t kScaleBytes[kPairs][16] = {
    {kNone, kNone, 0, 1, kNone, kNone, 2, 3, kNone, kNone, 0, 1, kNone, kNone, 2, 3},
    {kNone, kNone, 4, 5, kNone, kNone, 6, 7, kNone, kNone, 4, 5, kNone, kNone, 6, 7},
    {kNone, kNone, 8, 9, kNone, kNone, 10, 11, kNone, kNone, 8, 9, kNone, kNone, 10, 11},
    {kNone, kNone, 12, 13, kNone, kNone, 14, 15, kNone, kNone, 12, 13, kNone, kNone, 14, 15}};

inline __attribute__((always_inline)) int8x16_t LowCodes(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vshlq_n_u8(bytes, 4));
}

inline __attribute__((always_inline)) int8x16_t HighCodes(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0xF0)));
}

// The codes of a pair of outputs for half of the inputs.
inline __attribute__((always_inline)) uint8x16_t LoadCodes(const uint8_t* group, int pair,
                                                           int half) {
  return vld1q_u8(group + half * kHalfCodes + 16 * pair);
}

// As in an accumulator: the pair's, for the one row and for the other.
inline __attribute__((always_inline)) float32x4_t LoadScales(const uint8_t* group, int pair) {
  const uint8x16_t scales = vld1q_u8(group + kScalesAt);
  return vreinterpretq_f32_u8(vqtbl1q_u8(scales, vld1q_u8(kScaleBytes[pair])));
}

// A group as it lies in a panel: the codes of a pair of outputs for the part-th 8 inputs, its
// scales.
struct PackedGroup {
  static constexpr int kBytes = kGroupBytes;
  static inline __attribute__((always_inline)) int8x16_t Codes(const uint8_t* group, int pair,
                                                               int part) {
    const uint8x16_t bytes = LoadCodes(group, pair, part / 2);
    return part % 2 == 0 ? LowCodes(bytes) : HighCodes(bytes);
  }
  static inline __attribute__((always_inline)) float32x4_t Scales(const uint8_t* group, int pair) {
    return LoadScales(group, pair);
  }
};

// The same as Expand leaves it: [pairs][parts] vectors of codes, [pairs] of scales.
struct ExpandedGroup {
  static constexpr int kScalesAt = 16 * kPairs * kParts;
  static constexpr int kBytes = kScalesAt + 16 * kPairs;
  static inline __attribute__((always_inline)) int8x16_t Codes(const uint8_t* group, int pair,
                                                               int part) {
    return vreinterpretq_s8_u8(vld1q_u8(group + 16 * (pair * kParts + part)));
  }
  static inline __attribute__((always_inline)) float32x4_t Scales(const uint8_t* group, int pair) {
    return vreinterpretq_f32_u8(vld1q_u8(group + kScalesAt + 16 * pair));
  }
};

void Expand(const void* panel, int64_t groups, void* to) {
  const auto* group = static_cast<const uint8_t*>(panel);
  auto* out = static_cast<uint8_t*>(to);
  for (int64_t g = 0; g < groups; ++g, group += kGroupBytes, out += ExpandedGroup::kBytes) {
    TALON_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      TALON_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const int8x16_t codes = PackedGroup::Codes(group, pair, part);
        vst1q_s8(reinterpret_cast<int8_t*>(out) + 16 * (pair * kParts + part), codes);
      }
      const float32x4_t scales = PackedGroup::Scales(group, pair);
      vst1q_f32(reinterpret_cast<float*>(out + ExpandedGroup::kScalesAt) + 4 * pair, scales);
    }
  }
}

// One group of two pairs of outputs, from `first` on, for all rows: no product waits for the one
// before it.
template <class Group, int kRowPairs>
inline __attribute__((always_inline)) void Step(const int8_t* x, const uint8_t* group, int first,
                                                float32x4_t (&acc)[kRowPairs][2]) {
  const float32x4_t start = vdupq_n_f32(kStart);
  int32x4_t sums[kRowPairs][2];
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) sums[p][0] = sums[p][1] = vreinterpretq_s32_f32(start);
  TALON_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const int8x16_t codes[2] = {Group::Codes(group, first, i), Group::Codes(group, first + 1, i)};
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) {
      const int8x16_t rows = vld1q_s8(x + 16 * (i * kRowPairs + p));
      sums[p][0] = vmmlaq_s32(sums[p][0], rows, codes[0]);
      sums[p][1] = vmmlaq_s32(sums[p][1], rows, codes[1]);
    }
  }
  TALON_UNROLL
  for (int q = 0; q < 2; ++q) {
    const float32x4_t scales = Group::Scales(group, first + q);
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) {
      const float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(sums[p][q]), start);
      acc[p][q] = vfmaq_f32(acc[p][q], sum, scales);
    }
  }
}

// kCount pairs of outputs, from kFirst on. Accumulators stay in registers; those of a whole panel
// would not for six rows and more.
template <class Group, int kRowPairs, int kFirst, int kCount>
inline __attribute__((always_inline)) void Outputs(const TileArgs& args) {
  static_assert(kCount % 2 == 0);
  const auto* from = static_cast<const float*>(args.from) + 4 * kFirst;
  auto* to = static_cast<float*>(args.to) + 4 * kFirst;
  float32x4_t acc[kCount / 2][kRowPairs][2];
  TALON_UNROLL
  for (int q = 0; q < kCount; ++q) {
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p)
      acc[q / 2][p][q % 2] = vld1q_f32(from + 4 * (p * kPairs + q));
  }
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* group = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g) {
    if constexpr (kFirst == 0) {
      for (int64_t i = 0; i < args.next_step; i += kCacheLine) __builtin_prefetch(next + i, 0, 2);
      next += args.next_step;
    }
    TALON_UNROLL
    for (int q = 0; q < kCount; q += 2) Step<Group, kRowPairs>(x, group, kFirst + q, acc[q / 2]);
    x += 2 * kRowPairs * kInt4Group;
    group += Group::kBytes;
  }
  TALON_UNROLL
  for (int q = 0; q < kCount; ++q) {
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) vst1q_f32(to + 4 * (p * kPairs + q), acc[q / 2][p][q % 2]);
  }
}

template <class Group, int kRowPairs>
void Rows(const TileArgs& args) {
  if constexpr (kRowPairs <= 2) {
    Outputs<Group, kRowPairs, 0, kPairs>(args);
  } else {
    Outputs<Group, kRowPairs, 0, kPairs / 2>(args);
    Outputs<Group, kRowPairs, kPairs / 2, kPairs / 2>(args);
  }
}

// One group of four outputs for a single row: the row's sums by two pairs are brought together
// before they become floats, the zeros' sums beside them are dropped.
inline __attribute__((always_inline)) float32x4_t AddFour(const int8x16_t (&rows)[kParts],
                                                          const uint8_t* group, int first_pair,
                                                          float32x4_t acc) {
  const float32x4_t start = vdupq_n_f32(kStart);
  int64x2_t sums[2];
  TALON_UNROLL
  for (int q = 0; q < 2; ++q) {
    const uint8x16_t bytes[2] = {LoadCodes(group, first_pair + q, 0),
                                 LoadCodes(group, first_pair + q, 1)};
    int32x4_t sum = vreinterpretq_s32_f32(start);
    sum = vmmlaq_s32(sum, rows[0], LowCodes(bytes[0]));
    sum = vmmlaq_s32(sum, rows[1], HighCodes(bytes[0]));
    sum = vmmlaq_s32(sum, rows[2], LowCodes(bytes[1]));
    sum = vmmlaq_s32(sum, rows[3], HighCodes(bytes[1]));
    sums[q] = vreinterpretq_s64_s32(sum);
  }
  const float32x4_t sum = vreinterpretq_f32_s64(vzip1q_s64(sums[0], sums[1]));
  const auto* scales = reinterpret_cast<const uint16_t*>(group + kScalesAt) + 2 * first_pair;
  const uint32x4_t wide = vshll_n_u16(vld1_u16(scales), 16);
  return vfmaq_f32(acc, vsubq_f32(sum, start), vreinterpretq_f32_u32(wide));
}

void SingleRow(const TileArgs& args) {
  constexpr int kFours = kPairs / 2;
  const auto* from = static_cast<const float*>(args.from);  // [pairs][2 rows][2 outputs]
  auto* to = static_cast<float*>(args.to);
  float32x4_t acc[kFours];
  TALON_UNROLL
  for (int i = 0; i < kFours; ++i) {
    acc[i] = vcombine_f32(vld1_f32(from + 8 * i), vld1_f32(from + 8 * i + 4));
  }
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* group = static_cast<const uint8_t*>(args.panel);
  for (int64_t g = 0; g < args.groups; ++g, x += 2 * kInt4Group, group += kGroupBytes) {
    int8x16_t rows[kParts];
    TALON_UNROLL
    for (int i = 0; i < kParts; ++i) rows[i] = vld1q_s8(x + 16 * i);
    TALON_UNROLL
    for (int i = 0; i < kFours; ++i) acc[i] = AddFour(rows, group, 2 * i, acc[i]);
  }
  TALON_UNROLL
  for (int i = 0; i < kFours; ++i) {
    vst1_f32(to + 8 * i, vget_low_f32(acc[i]));
    vst1_f32(to + 8 * i + 4, vget_high_f32(acc[i]));
  }
}

template <class Group>
void TileOf(const TileArgs& args) {
  switch (args.rows) {
    case 2:
      return Rows<Group, 1>(args);
    case 4:
      return Rows<Group, 2>(args);
    case 6:
      return Rows<Group, 3>(args);
    default:
      return Rows<Group, 4>(args);
  }
}

void Tile(const TileArgs& args) {
  if (args.expanded) return TileOf<ExpandedGroup>(args);
  return args.single ? SingleRow(args) : TileOf<PackedGroup>(args);
}

}  // namespace

const MatrixKernel& ArmI8mmInt4Kernel() {
  static const MatrixKernel kernel = {
      .name = "int4 smmla",
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
      .burn = nullptr,
      .limits = {.packed_rows = kMaxRows, .slice_bytes = 64 * kGroupBytes},
      .expand = Expand,
      .expanded_group_bytes = ExpandedGroup::kBytes};
  return kernel;
}

}  // namespace talon
