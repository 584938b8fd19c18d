// Attention over a bf16 cache with bfmmla (FEAT_BF16): queries and probabilities are rounded to
// bf16, sums are float32. Compiled with that instruction set enabled, called only where it is
// present.
//
// bfmmla multiplies [2, 4] by [4, 2] into [2, 2]. Everything stays in that shape from the query to
// the sum of values (AttentionKernels::row_pairs), so nothing is rearranged between the products.
// Packed operands are groups of 8 bf16, 2 columns by 4 of depth; 4 groups side by side make a
// stripe of 8 columns, and a stripe is contiguous over the whole depth.
#include <arm_neon.h>

#include <algorithm>
#include <cmath>

#include "compute/cpu/attention_kernels.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace {

constexpr int kGroup = 8;                 // elements of an operand register
constexpr int kStripe = 4;                // groups side by side
constexpr int kStripeCols = 2 * kStripe;  // columns

inline uint16x8_t Load8(const uint16_t* p) { return vld1q_u16(p); }

inline uint16x8_t LowHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
inline uint16x8_t HighHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

// ---- Packing ----

// Four elements in every eight, beside those of the other row of the pair.
void PackQuery(const float* q, int head_dim, float scale, void* out) {
  auto* packed = static_cast<bfloat16_t*>(out);
  int i = 0;
  for (; i + 4 <= head_dim; i += 4) {
    vst1_bf16(packed + 2 * i, vcvt_bf16_f32(vmulq_n_f32(vld1q_f32(q + i), scale)));
  }
  for (; i < PaddedDim(head_dim); ++i) {
    packed[i / 4 * kGroup + i % 4] = vcvth_bf16_f32(i < head_dim ? q[i] * scale : 0.0f);
  }
}

// Eight elements from `p`, zeros from `valid` on.
inline uint16x8_t LoadPartial(const uint16_t* p, int valid) {
  if (valid >= kGroup) return Load8(p);
  uint16_t buffer[kGroup] = {};
  for (int i = 0; i < valid; ++i) buffer[i] = p[i];
  return Load8(buffer);
}

// Eight keys, one stripe, by eight dimensions.
template <bool kWhole>
inline void PackEightKeys(const uint16_t* keys, int head_dim, int valid, uint16_t* out) {
#pragma GCC unroll 4
  for (int pair = 0; pair < kStripe; ++pair, keys += 2 * head_dim) {
    const uint16x8_t x = kWhole ? Load8(keys) : LoadPartial(keys, valid);
    const uint16x8_t y = kWhole ? Load8(keys + head_dim) : LoadPartial(keys + head_dim, valid);
    vst1q_u16(out + pair * kGroup, LowHalves(x, y));
    vst1q_u16(out + (kStripe + pair) * kGroup, HighHalves(x, y));
  }
}

void PackKeys(const KvTile& tile, void* b) {
  const int whole = tile.head_dim / 8 * 8;
  auto* out = static_cast<uint16_t*>(b);
  for (int u = 0; u < tile.num_units; ++u, out += kStripeCols * PaddedDim(tile.head_dim)) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* keys = static_cast<const uint16_t*>(tile.units[u]);
    for (int d = 0; d < whole; d += 8) {
      PackEightKeys<true>(keys + d, tile.head_dim, 8, out + d * kStripeCols);
    }
    if (whole == tile.head_dim) continue;
    PackEightKeys<false>(keys + whole, tile.head_dim, tile.head_dim - whole,
                         out + whole * kStripeCols);
  }
}

// Four keys by eight dimensions: one stripe of four keys of depth.
inline void TransposeValues(uint16x8_t v0, uint16x8_t v1, uint16x8_t v2, uint16x8_t v3,
                            uint16_t* out) {
  const uint32x4_t low01 = vreinterpretq_u32_u16(vzip1q_u16(v0, v1));
  const uint32x4_t low23 = vreinterpretq_u32_u16(vzip1q_u16(v2, v3));
  const uint32x4_t high01 = vreinterpretq_u32_u16(vzip2q_u16(v0, v1));
  const uint32x4_t high23 = vreinterpretq_u32_u16(vzip2q_u16(v2, v3));
  vst1q_u16(out, vreinterpretq_u16_u32(vzip1q_u32(low01, low23)));
  vst1q_u16(out + kGroup, vreinterpretq_u16_u32(vzip2q_u32(low01, low23)));
  vst1q_u16(out + 2 * kGroup, vreinterpretq_u16_u32(vzip1q_u32(high01, high23)));
  vst1q_u16(out + 3 * kGroup, vreinterpretq_u16_u32(vzip2q_u32(high01, high23)));
}

// The keys 0, 1, 4, 5 of a unit make the first four of depth, 2, 3, 6, 7 the second: the order in
// which Softmax's weights come.
inline void PackUnitValues(const uint16_t* in, int head_dim, int valid, uint16_t* out) {
  const auto load = [&](int key) { return LoadPartial(in + key * head_dim, valid); };
  TransposeValues(load(0), load(1), load(4), load(5), out);
  TransposeValues(load(2), load(3), load(6), load(7), out + kStripe * kGroup);
}

void PackValues(const KvTile& tile, void* b) {
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* in = static_cast<const uint16_t*>(tile.units[u]);
    uint16_t* out = static_cast<uint16_t*>(b) + u * kUnitKeys * kStripeCols;
    int d = 0;
    for (; d + 8 <= tile.head_dim; d += 8, out += kTileKeys * kStripeCols) {
      PackUnitValues(in + d, tile.head_dim, 8, out);
    }
    if (d < tile.head_dim) PackUnitValues(in + d, tile.head_dim, tile.head_dim - d, out);
  }
}

// ---- Products ----

// How the sums of a product start: at zero, at what `out` holds, or at that times the row's factor.
enum class Start { kZero, kKeep, kRescale };

// Some pairs of rows of a product.
struct RowPairs {
  const uint16_t* a = nullptr;  // of the first pair, from the first of the product's depth on
  int64_t a_stride = 0;         // from pair to pair
  float* out = nullptr;         // of the first pair, from the first of the product's columns on
  int64_t out_stride = 0;
  const float* rescale = nullptr;  // [2 * pairs]
};

template <Start kStart>
inline float32x4_t StartSum(const float* out, float32x4_t factors) {
  if constexpr (kStart == Start::kZero) return vdupq_n_f32(0);
  const float32x4_t held = vld1q_f32(out);
  return kStart == Start::kRescale ? vmulq_f32(held, factors) : held;
}

// kPairs pairs of rows by kStripes stripes of `out`, held in registers over the whole depth.
// Stripes of `b` are `stripe` elements apart.
template <int kPairs, int kStripes, Start kStart>
inline void MultiplyBlock(const RowPairs& pairs, const uint16_t* b, int64_t stripe, int depth,
                          int col) {
  constexpr int kSums = kStripes * kStripe;
  float32x4_t sums[kPairs][kSums];
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    float32x4_t factors = vdupq_n_f32(1);
    if constexpr (kStart == Start::kRescale) {
      factors = vcombine_f32(vld1_dup_f32(pairs.rescale + 2 * p),
                             vld1_dup_f32(pairs.rescale + 2 * p + 1));
    }
#pragma GCC unroll 16
    for (int c = 0; c < kSums; ++c) {
      sums[p][c] = StartSum<kStart>(pairs.out + p * pairs.out_stride + 2 * col + 4 * c, factors);
    }
  }
  const uint16_t* a = pairs.a;
  for (int d = 0; d < depth; d += 4, a += kGroup, b += kStripe * kGroup) {
    bfloat16x8_t rows[kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
      rows[p] = vreinterpretq_bf16_u16(Load8(a + p * pairs.a_stride));
#pragma GCC unroll 16
    for (int c = 0; c < kSums; ++c) {
      const bfloat16x8_t columns =
          vreinterpretq_bf16_u16(Load8(b + c / kStripe * stripe + c % kStripe * kGroup));
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) sums[p][c] = vbfmmlaq_f32(sums[p][c], rows[p], columns);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 16
    for (int c = 0; c < kSums; ++c) {
      vst1q_f32(pairs.out + p * pairs.out_stride + 2 * col + 4 * c, sums[p][c]);
    }
  }
}

// Few rows take wide blocks, many rows narrow ones: 16 sums either way.
template <int kPairs, Start kStart>
void MultiplyStripes(const TileProduct& product, const RowPairs& pairs) {
  constexpr int kWide = kPairs == 1 ? 4 : (kPairs == 2 ? 2 : 1);
  const int64_t stripe = product.b_depth * kStripeCols;
  const auto* b = static_cast<const uint16_t*>(product.b);
  int col = 0;
  for (; col + kWide * kStripeCols <= product.cols; col += kWide * kStripeCols) {
    MultiplyBlock<kPairs, kWide, kStart>(pairs, b + col / kStripeCols * stripe, stripe,
                                         product.depth, col);
  }
  if constexpr (kWide > 1) {
    for (; col < product.cols; col += kStripeCols) {
      MultiplyBlock<kPairs, 1, kStart>(pairs, b + col / kStripeCols * stripe, stripe, product.depth,
                                       col);
    }
  }
}

template <int kPairs>
void MultiplyPairs(const TileProduct& product, const RowPairs& pairs) {
  if (pairs.rescale == nullptr) {
    MultiplyStripes<kPairs, Start::kZero>(product, pairs);
  } else if (std::any_of(pairs.rescale, pairs.rescale + 2 * kPairs,
                         [](float factor) { return factor != 1.0f; })) {
    MultiplyStripes<kPairs, Start::kRescale>(product, pairs);
  } else {  // the running maximum seldom changes
    MultiplyStripes<kPairs, Start::kKeep>(product, pairs);
  }
}

RowPairs PairsAt(const TileProduct& product, int row) {
  return {.a = static_cast<const uint16_t*>(product.a) + row * product.a_stride +
               2 * product.first_depth,
          .a_stride = 2 * product.a_stride,
          .out = product.out + row * product.out_stride + 2 * product.first_col,
          .out_stride = 2 * product.out_stride,
          .rescale = product.rescale == nullptr ? nullptr : product.rescale + row};
}

// One row of a pair, in a copy of the pair's sums: the other row's stay as they are.
void MultiplySingle(const TileProduct& product, int row) {
  constexpr int kMaxCols = 512;  // of one call
  RowPairs pair = PairsAt(product, row / 2 * 2);
  float* const kept = pair.out;
  float sums[2 * kMaxCols];
  TileProduct part = product;
  for (int col = 0; col < product.cols; col += kMaxCols) {
    part.cols = std::min(kMaxCols, product.cols - col);
    part.b = static_cast<const uint16_t*>(product.b) + int64_t{col} * product.b_depth;
    std::copy_n(kept + 2 * col, 2 * part.cols, sums);
    pair.out = sums;
    MultiplyPairs<1>(part, pair);
    for (int i = row % 2 * 2; i < 2 * part.cols; i += 4) {
      std::copy_n(sums + i, 2, kept + 2 * col + i);
    }
  }
}

void Multiply(const TileProduct& product) {
  int row = product.first_row;
  int end = product.first_row + product.rows;
  if (row % 2 == 1) MultiplySingle(product, row++);
  const bool odd_end = end % 2 == 1 && end > row;
  end -= end % 2;
  for (; row + 8 <= end; row += 8) MultiplyPairs<4>(product, PairsAt(product, row));
  if (row + 6 == end) MultiplyPairs<3>(product, PairsAt(product, row));
  if (row + 4 == end) MultiplyPairs<2>(product, PairsAt(product, row));
  if (row + 2 == end) MultiplyPairs<1>(product, PairsAt(product, row));
  if (odd_end) MultiplySingle(product, end);
}

// ---- Softmax ----

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
void HideKeys(float* scores, int count) {
  for (int key = count; key < kTileKeys; ++key) scores[key / 2 * 4 + key % 2] = -HUGE_VALF;
}

// One row's share of a pair's results.
void StorePairRow(const TileSoftmax& tile, int row, float max, float sum) {
  if (tile.counts[row] == 0) return;
  const float change = tile.max[row] - max;
  tile.rescale[row] = vgetq_lane_f32(CoarseExp2(vdupq_n_f32(change)), 0);
  tile.sum[row] = tile.sum[row] * tile.rescale[row] + sum;
  tile.max[row] = max;
}

void Softmax(const TileSoftmax& tile) {
  for (int r = 0; r < tile.rows; r += 2) {
    float* scores = tile.scores + r * kTileKeys;
    for (int half = 0; half < 2; ++half) {
      if (tile.counts[r + half] < kTileKeys) HideKeys(scores + 2 * half, tile.counts[r + half]);
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

}  // namespace

const AttentionKernels* ArmBf16AttentionKernels() {
  static const AttentionKernels kernels = {.name = "bfmmla",
                                           .operand_size = sizeof(uint16_t),
                                           .row_pairs = true,
                                           .pack_query = PackQuery,
                                           .pack_keys = PackKeys,
                                           .pack_values = PackValues,
                                           .multiply = Multiply,
                                           .softmax = Softmax};
  const CpuFeatures& has = GetCpuFeatures();
  return has.bf16 && has.fp16fml ? &kernels : nullptr;  // fmlal comes with half precision
}

}  // namespace talon
