// Attention over a bf16 cache with bfmmla (FEAT_BF16): queries and probabilities are rounded to
// bf16, sums are float32. Its files are compiled with that instruction set enabled and called only
// where it is present.
//
// bfmmla multiplies [2, 4] by [4, 2] into [2, 2]. Everything stays in that shape from the query to
// the sum of values (AttentionKernels::row_pairs), so nothing is rearranged between the products.
// The right operand is groups of 8 bf16, 2 columns by 4 of depth; 4 groups side by side make a
// stripe of 8 columns. A unit of the cache (kv_units.h) is a stripe of keys, or of a stripe of
// values eight of depth.
#ifndef TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_INL_H_
#define TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_INL_H_

#include <arm_neon.h>

#include "compute/cpu/attention/kernels.h"

namespace talon::arm_bf16 {

// Functions of AttentionKernels.
void Multiply(const TileProduct& product);
void MultiplyKeys(const KvTile& keys, const TileProduct& product);
void MultiplyValues(const KvTile& values, const TileProduct& product);
void Softmax(const TileSoftmax& tile);
void ExpandUnit(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales, int head_dim,
                uint16_t* out);

namespace {

constexpr int kGroup = 8;                 // elements of an operand register
constexpr int kStripe = 4;                // groups side by side
constexpr int kStripeCols = 2 * kStripe;  // columns

inline uint16x8_t Load8(const uint16_t* p) { return vld1q_u16(p); }

// Eight dimensions of two keys are two groups: the low halves, then the high ones.
inline uint16x8_t LowHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
inline uint16x8_t HighHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

// Eight dimensions of four values are a stripe, four keys deep.
inline uint16x8x4_t TransposeValues(uint16x8_t v0, uint16x8_t v1, uint16x8_t v2, uint16x8_t v3) {
  const uint32x4_t low01 = vreinterpretq_u32_u16(vzip1q_u16(v0, v1));
  const uint32x4_t low23 = vreinterpretq_u32_u16(vzip1q_u16(v2, v3));
  const uint32x4_t high01 = vreinterpretq_u32_u16(vzip2q_u16(v0, v1));
  const uint32x4_t high23 = vreinterpretq_u32_u16(vzip2q_u16(v2, v3));
  return {vreinterpretq_u16_u32(vzip1q_u32(low01, low23)),
          vreinterpretq_u16_u32(vzip2q_u32(low01, low23)),
          vreinterpretq_u16_u32(vzip1q_u32(high01, high23)),
          vreinterpretq_u16_u32(vzip2q_u32(high01, high23))};
}

// The keys 0, 1, 4, 5 of a unit make the first four of depth, 2, 3, 6, 7 the second: the order in
// which Softmax's weights come.
constexpr int kDepthKeys[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}};

}  // namespace
}  // namespace talon::arm_bf16

#endif  // TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_INL_H_
