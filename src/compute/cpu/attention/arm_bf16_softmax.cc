// Softmax of a tile of scores for attention with bfmmla (arm_bf16-inl.h).
#include <cmath>

#include "compute/cpu/attention/arm_bf16-inl.h"

namespace talon::arm_bf16 {
namespace {

// 2^x for x <= 0 to about the precision of bf16. Exactly 1 at 0, exactly 0 from -127 on; NaN stays.
inline float32x4_t CoarseExp2(float32x4_t x) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);  // 1.5 * 2^23: rounds to an integer
  const float32x4_t bounded = vmaxq_f32(x, vdupq_n_f32(-127.0f));
  const float32x4_t shifted = vaddq_f32(bounded, magic);
  const float32x4_t r = vsubq_f32(bounded, vsubq_f32(shifted, magic));  // [-0.5, 0.5]
  float32x4_t p = vfmaq_f32(vdupq_n_f32(0.242035329f), vdupq_n_f32(0.0557546802f), r);
  p = vfmaq_f32(vdupq_n_f32(0.693147182f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  const uint32x4_t exponent = vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23);
  return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), exponent));
}

// 2^x for x <= 0 as bf16, eight at a time in half precision: x is off by at most 2^-12 of itself,
// least where the weight is largest. Exactly 1 at 0, exactly 0 from -127 on. Several vectors side
// by side, because one alone is a long chain of dependent operations.
template <int kVectors>
inline void Bf16Exp2(const float16x8_t* x, uint16x8_t* out) {
  // 1.5 * 2^10 rounds to an integer n in the low bits; 112 is the difference of the two types'
  // exponent biases.
  const float16x8_t magic = vdupq_n_f16(1536 + 112);
  float16x8_t r[kVectors], p[kVectors];
  uint16x8_t exponent[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const float16x8_t bounded = vmaxq_f16(x[v], vdupq_n_f16(-127));
    const float16x8_t shifted = vaddq_f16(bounded, magic);
    r[v] = vsubq_f16(bounded, vsubq_f16(shifted, magic));  // [-0.5, 0.5]
    exponent[v] = vshlq_n_u16(vreinterpretq_u16_f16(shifted), 7);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    p[v] = vfmaq_f16(vdupq_n_f16(0.242035329f), r[v], vdupq_n_f16(0.0557546802f));
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) p[v] = vfmaq_f16(vdupq_n_f16(0.693147182f), p[v], r[v]);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) p[v] = vfmaq_f16(vdupq_n_f16(1), p[v], r[v]);
    // Half precision's ten bits of fraction become seven, rounded, below the exponent n + 112.
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    out[v] = vrsraq_n_u16(exponent[v], vreinterpretq_u16_f16(p[v]), 3);
  }
}

// [a, a, b, b]: the larger of each row's two lanes.
inline float32x4_t MaxOfRows(float32x4_t pair) { return vmaxq_f32(pair, vrev64q_f32(pair)); }

inline float32x4_t PairMax(const float* scores) {
  float32x4_t max[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) max[v] = vld1q_f32(scores + 4 * v);
#pragma GCC unroll 4
  for (int i = 16; i < 2 * kTileKeys; i += 16) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) max[v] = vmaxq_f32(max[v], vld1q_f32(scores + i + 4 * v));
  }
  return MaxOfRows(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3])));
}

// Hidden from the compiler: GCC 12 writes a bf16 constant of 1 as half precision's.
inline bfloat16x8_t Bf16Ones() {
  uint16x8_t bits = vdupq_n_u16(0x3f80);
  asm("" : "+w"(bits));
  return vreinterpretq_bf16_u16(bits);
}

// Writes the weights of a pair's tile as the operand of the values' product and returns the sums of
// the rounded ones, each twice.
inline float32x4_t PairWeights(const float* scores, float32x4_t max, uint16_t* probs) {
  const bfloat16x8_t ones = Bf16Ones();
  float32x4_t sums[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  constexpr int kVectors = 8;
  for (int i = 0; i < 2 * kTileKeys; i += kVectors * kGroup) {
    float16x8_t x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* from = scores + i + v * kGroup;
      const float16x4_t low = vcvt_f16_f32(vsubq_f32(vld1q_f32(from), max));
      x[v] = vcvt_high_f16_f32(low, vsubq_f32(vld1q_f32(from + 4), max));
    }
    uint16x8_t w[kVectors];
    Bf16Exp2<kVectors>(x, w);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += 2) {
      const uint32x4_t first = vreinterpretq_u32_u16(w[v]);
      const uint32x4_t second = vreinterpretq_u32_u16(w[v + 1]);
      const uint16x8_t group0 = vreinterpretq_u16_u32(vzip1q_u32(first, second));
      const uint16x8_t group1 = vreinterpretq_u16_u32(vzip2q_u32(first, second));
      vst1q_u16(probs + i + v * kGroup, group0);
      vst1q_u16(probs + i + (v + 1) * kGroup, group1);
      sums[0] = vbfmmlaq_f32(sums[0], vreinterpretq_bf16_u16(group0), ones);
      sums[1] = vbfmmlaq_f32(sums[1], vreinterpretq_bf16_u16(group1), ones);
    }
  }
  return vaddq_f32(sums[0], sums[1]);
}

// Keys that a row does not see weigh nothing.
void HideKeys(float* scores, int first, int last) {
  for (int key = first; key < last; ++key) scores[key / 2 * 4 + key % 2] = -HUGE_VALF;
}

// One row's share of a pair's results.
void StorePairRow(const TileSoftmax& tile, int row, float max, float sum) {
  if (tile.counts[row] == 0) return;
  const float change = tile.max[row] - max;
  tile.rescale[row] = vgetq_lane_f32(CoarseExp2(vdupq_n_f32(change)), 0);
  tile.sum[row] = tile.sum[row] * tile.rescale[row] + sum;
  tile.max[row] = max;
}

}  // namespace

void Softmax(const TileSoftmax& tile) {
  for (int r = 0; r < tile.rows; r += 2) {
    float* scores = tile.scores + r * kTileKeys;
    for (int half = 0; half < 2; ++half) {
      HideKeys(scores + 2 * half, 0, tile.firsts[r + half]);
      HideKeys(scores + 2 * half, tile.counts[r + half], kTileKeys);
    }
    const float32x4_t before =
        vcombine_f32(vld1_dup_f32(tile.max + r), vld1_dup_f32(tile.max + r + 1));
    const float32x4_t max = vmaxq_f32(before, PairMax(scores));
    const float32x4_t sums =
        PairWeights(scores, max, static_cast<uint16_t*>(tile.probs) + r * kTileKeys);
    StorePairRow(tile, r, vgetq_lane_f32(max, 0), vgetq_lane_f32(sums, 0));
    StorePairRow(tile, r + 1, vgetq_lane_f32(max, 2), vgetq_lane_f32(sums, 2));
  }
}

}  // namespace talon::arm_bf16
