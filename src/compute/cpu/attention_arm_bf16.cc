// Attention over a bf16 cache with bfmmla (FEAT_BF16): queries and probabilities are rounded to
// bf16, sums are float32. Compiled with that instruction set enabled, called only where it is
// present.
//
// bfmmla multiplies [2, 4] by [4, 2] into [2, 2]. Packed operands are groups of 8 bf16: 2 columns
// by 4 of depth, group (depth / 4, column / 2) at index depth / 4 * (columns / 2) + column / 2.
#include <arm_neon.h>

#include <algorithm>
#include <cmath>

#include "compute/cpu/attention_kernels.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace {

constexpr int kGroup = 8;  // elements of an operand register

inline uint16x8_t Load8(const uint16_t* p) { return vld1q_u16(p); }

inline uint16x8_t LowHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
inline uint16x8_t HighHalves(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

void PackQuery(const float* q, int head_dim, float scale, void* out) {
  auto* packed = static_cast<bfloat16_t*>(out);
  int i = 0;
  for (; i + 4 <= head_dim; i += 4) {
    vst1_bf16(packed + i, vcvt_bf16_f32(vmulq_n_f32(vld1q_f32(q + i), scale)));
  }
  for (; i < head_dim; ++i) packed[i] = vcvth_bf16_f32(q[i] * scale);
  for (; i < PaddedDim(head_dim); ++i) packed[i] = vcvth_bf16_f32(0.0f);
}

// Eight elements from `p`, zeros from `valid` on.
inline uint16x8_t LoadPartial(const uint16_t* p, int valid) {
  if (valid >= kGroup) return Load8(p);
  uint16_t buffer[kGroup] = {};
  for (int i = 0; i < valid; ++i) buffer[i] = p[i];
  return Load8(buffer);
}

// Eight keys by eight dimensions: two rows of four groups, `row` elements apart.
template <bool kWhole>
inline void PackEightKeys(const uint16_t* keys, int head_dim, int valid, uint16_t* out, int row) {
#pragma GCC unroll 4
  for (int pair = 0; pair < kUnitKeys / 2; ++pair, keys += 2 * head_dim) {
    const uint16x8_t x = kWhole ? Load8(keys) : LoadPartial(keys, valid);
    const uint16x8_t y = kWhole ? Load8(keys + head_dim) : LoadPartial(keys + head_dim, valid);
    vst1q_u16(out + pair * kGroup, LowHalves(x, y));
    vst1q_u16(out + row + pair * kGroup, HighHalves(x, y));
  }
}

void PackKeys(const KvTile& tile, void* b) {
  constexpr int kRow = kTileKeys / 2 * kGroup;
  const int whole = tile.head_dim / 8 * 8;
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* keys = static_cast<const uint16_t*>(tile.units[u]);
    uint16_t* out = static_cast<uint16_t*>(b) + u * kUnitKeys / 2 * kGroup;
    for (int d = 0; d < whole; d += 8) {
      PackEightKeys<true>(keys + d, tile.head_dim, 8, out + d / 4 * kRow, kRow);
    }
    if (whole == tile.head_dim) continue;
    PackEightKeys<false>(keys + whole, tile.head_dim, tile.head_dim - whole, out + whole / 4 * kRow,
                         kRow);
  }
}

// Four keys by eight dimensions: four groups of two dimensions.
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

void PackValues(const KvTile& tile, void* b) {
  const int dim = PaddedDim(tile.head_dim);
  const int whole = tile.head_dim / 8 * 8;
  for (int four = 0; four < tile.num_units * 2; ++four) {
    if (four % 2 == 0) FetchAhead(tile.ahead[four / 2], kUnitKeys * tile.head_dim * int64_t{2});
    const auto* in =
        static_cast<const uint16_t*>(tile.units[four / 2]) + four % 2 * 4 * tile.head_dim;
    uint16_t* out = static_cast<uint16_t*>(b) + four * 4 * dim;
    for (int d = 0; d < dim; d += 8, in += 8, out += 4 * kGroup) {
      const int stride = tile.head_dim;
      if (d < whole) {
        TransposeValues(Load8(in), Load8(in + stride), Load8(in + 2 * stride),
                        Load8(in + 3 * stride), out);
      } else {
        const int valid = stride - whole;
        TransposeValues(LoadPartial(in, valid), LoadPartial(in + stride, valid),
                        LoadPartial(in + 2 * stride, valid), LoadPartial(in + 3 * stride, valid),
                        out);
      }
    }
  }
}

// At most four pairs of rows of a product over a stretch of its depth. A missing last row repeats
// the one before it in every respect, so it computes and stores the same values twice.
struct RowPairs {
  static constexpr int kMaxPairs = 4;
  static constexpr int kMaxDepth = 256;
  int depth_begin = 0;
  int depth = 0;              // at most kMaxDepth, a multiple of 8
  float* out[2 * kMaxPairs];  // by row
  float rescale[2 * kMaxPairs];
  alignas(16) uint16_t groups[kMaxDepth / 4 * kMaxPairs * kGroup];  // operands (depth / 4, pair)

  bool AnyRescale(int rows) const {
    return std::any_of(rescale, rescale + rows, [](float factor) { return factor != 1.0f; });
  }

  template <int kPairs>
  void Load(const TileProduct& product, int first_row) {
    for (int r = 0; r < 2 * kPairs; ++r) {
      const int row = std::min(first_row + r, product.rows - 1);
      out[r] = product.out + row * product.out_stride;
      rescale[r] = product.rescale != nullptr && depth_begin == 0 ? product.rescale[row] : 1.0f;
    }
    const auto* a = static_cast<const uint16_t*>(product.a) + depth_begin;
    for (int pair = 0; pair < kPairs; ++pair) {
      const int row = first_row + 2 * pair;
      const uint16_t* row0 = a + row * product.a_stride;
      const uint16_t* row1 = a + std::min(row + 1, product.rows - 1) * product.a_stride;
      for (int d = 0; d < depth; d += 8) {
        uint16_t* group = groups + (d / 4 * kPairs + pair) * kGroup;
        const uint16x8_t x = Load8(row0 + d);
        const uint16x8_t y = Load8(row1 + d);
        vst1q_u16(group, LowHalves(x, y));
        vst1q_u16(group + kPairs * kGroup, HighHalves(x, y));
      }
    }
  }
};

inline float32x4_t LowPairs(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t HighPairs(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

// How the sums of a product start: at zero, at what `out` holds, or at that times the row's factor.
enum class Start { kZero, kKeep, kRescale };

// What two rows of `out` hold, times their factors, as kColPairs sums of two rows by two columns.
template <int kColPairs, Start kStart>
inline void StartSums(const float* row0, const float* row1, float factor0, float factor1,
                      float32x4_t* sums) {
#pragma GCC unroll 8
  for (int c = 0; c < kColPairs; c += 2) {
    float32x4_t x = vld1q_f32(row0 + 2 * c);
    float32x4_t y = vld1q_f32(row1 + 2 * c);
    if constexpr (kStart == Start::kRescale) {
      x = vmulq_n_f32(x, factor0);
      y = vmulq_n_f32(y, factor1);
    }
    sums[c] = LowPairs(x, y);
    sums[c + 1] = HighPairs(x, y);
  }
}

template <int kColPairs>
inline void StoreSums(const float32x4_t* sums, float* row0, float* row1) {
#pragma GCC unroll 8
  for (int c = 0; c < kColPairs; c += 2) {
    vst1q_f32(row0 + 2 * c, LowPairs(sums[c], sums[c + 1]));
    vst1q_f32(row1 + 2 * c, HighPairs(sums[c], sums[c + 1]));
  }
}

// sums += a * b over the depth: `a` as in RowPairs, `b` with `row_groups` groups per 4 of depth.
template <int kPairs, int kColPairs>
inline void AddProducts(const uint16_t* a, const uint16_t* b, int64_t row_groups, int depth,
                        float32x4_t (*sums)[kColPairs]) {
  for (int d = 0; d < depth; d += 4, a += kPairs * kGroup, b += row_groups * kGroup) {
    bfloat16x8_t rows[kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) rows[p] = vreinterpretq_bf16_u16(Load8(a + p * kGroup));
#pragma GCC unroll 16
    for (int c = 0; c < kColPairs; ++c) {
      const bfloat16x8_t columns = vreinterpretq_bf16_u16(Load8(b + c * kGroup));
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) sums[p][c] = vbfmmlaq_f32(sums[p][c], rows[p], columns);
    }
  }
}

// kPairs pairs of rows by kColPairs pairs of columns of `out`, held in registers.
template <int kPairs, int kColPairs, Start kStart>
inline void MultiplyBlock(const RowPairs& pairs, const uint16_t* b, int64_t row_groups, int col) {
  float32x4_t sums[kPairs][kColPairs];
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    if constexpr (kStart == Start::kZero) {
#pragma GCC unroll 16
      for (int c = 0; c < kColPairs; ++c) sums[p][c] = vdupq_n_f32(0);
    } else {
      StartSums<kColPairs, kStart>(pairs.out[2 * p] + col, pairs.out[2 * p + 1] + col,
                                   pairs.rescale[2 * p], pairs.rescale[2 * p + 1], sums[p]);
    }
  }
  AddProducts<kPairs, kColPairs>(pairs.groups, b + col / 2 * kGroup, row_groups, pairs.depth, sums);
#pragma GCC unroll 4
  for (int p = 0; p < kPairs; ++p) {
    StoreSums<kColPairs>(sums[p], pairs.out[2 * p] + col, pairs.out[2 * p + 1] + col);
  }
}

// Few rows take wide blocks, many rows narrow ones: 16 sums either way.
template <int kPairs, Start kStart>
void MultiplyColumns(const TileProduct& product, const RowPairs& pairs) {
  constexpr int kWide = kPairs == 1 ? 16 : (kPairs == 2 ? 8 : 4);
  const int64_t row_groups = product.b_cols / 2;
  const uint16_t* b =
      static_cast<const uint16_t*>(product.b) + pairs.depth_begin / 4 * row_groups * kGroup;
  int col = 0;
  for (; col + 2 * kWide <= product.cols; col += 2 * kWide) {
    MultiplyBlock<kPairs, kWide, kStart>(pairs, b, row_groups, col);
  }
  for (; col < product.cols; col += 8) {
    MultiplyBlock<kPairs, 4, kStart>(pairs, b, row_groups, col);
  }
}

template <int kPairs>
void MultiplyPairs(const TileProduct& product, int row, RowPairs* pairs) {
  pairs->Load<kPairs>(product, row);
  if (product.rescale == nullptr && pairs->depth_begin == 0) {
    MultiplyColumns<kPairs, Start::kZero>(product, *pairs);
  } else if (pairs->AnyRescale(2 * kPairs)) {
    MultiplyColumns<kPairs, Start::kRescale>(product, *pairs);
  } else {  // the running maximum seldom changes
    MultiplyColumns<kPairs, Start::kKeep>(product, *pairs);
  }
}

// Only head sizes past 256 take more than one stretch of depth.
void Multiply(const TileProduct& product) {
  RowPairs pairs;
  for (int d = 0; d < product.depth; d += RowPairs::kMaxDepth) {
    pairs.depth_begin = d;
    pairs.depth = std::min(product.depth - d, RowPairs::kMaxDepth);
    int row = 0;
    for (; row + 6 < product.rows; row += 8) MultiplyPairs<4>(product, row, &pairs);
    if (row + 4 < product.rows) {
      MultiplyPairs<3>(product, row, &pairs);
    } else if (row + 2 < product.rows) {
      MultiplyPairs<2>(product, row, &pairs);
    } else if (row < product.rows) {
      MultiplyPairs<1>(product, row, &pairs);
    }
  }
}

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

float RowMax(const float* scores) {
  float32x4_t even = vld1q_f32(scores);
  float32x4_t odd = vld1q_f32(scores + 4);
#pragma GCC unroll 8
  for (int i = 8; i < kTileKeys; i += 8) {
    even = vmaxq_f32(even, vld1q_f32(scores + i));
    odd = vmaxq_f32(odd, vld1q_f32(scores + i + 4));
  }
  return vmaxvq_f32(vmaxq_f32(even, odd));
}

// Writes the weights of one row's tile, rounded to bf16, and returns the sum of the rounded ones.
float TileWeights(const float* scores, float max, bfloat16_t* probs) {
  const float32x4_t base = vdupq_n_f32(max);
  float32x4_t even = vdupq_n_f32(0);
  float32x4_t odd = vdupq_n_f32(0);
  for (int i = 0; i < kTileKeys; i += 16) {
    float32x4_t w[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) w[v] = vsubq_f32(vld1q_f32(scores + i + 4 * v), base);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) w[v] = CoarseExp2(w[v]);
#pragma GCC unroll 2
    for (int v = 0; v < 4; v += 2) {
      const bfloat16x8_t rounded = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(w[v]), w[v + 1]);
      vst1q_bf16(probs + i + 4 * v, rounded);
      even = vaddq_f32(even, vcvtq_low_f32_bf16(rounded));
      odd = vaddq_f32(odd, vcvtq_high_f32_bf16(rounded));
    }
  }
  return vaddvq_f32(vaddq_f32(even, odd));
}

// In two loops over the rows, whose iterations do not wait for each other.
void Softmax(const TileSoftmax& tile) {
  float maxima[kMaxTileRows];
  for (int r = 0; r < tile.rows; ++r) {
    const int count = tile.counts[r];
    if (count == 0) continue;
    float* scores = tile.scores + r * kTileKeys;
    if (count < kTileKeys) std::fill(scores + count, scores + kTileKeys, -HUGE_VALF);
    maxima[r] = std::max(tile.max[r], RowMax(scores));
    const float change = tile.max[r] - maxima[r];
    tile.rescale[r] = vgetq_lane_f32(CoarseExp2(vdupq_n_f32(change)), 0);
    tile.max[r] = maxima[r];
  }
  for (int r = 0; r < tile.rows; ++r) {
    if (tile.counts[r] == 0) continue;
    auto* probs = static_cast<bfloat16_t*>(tile.probs) + r * kTileKeys;
    const float sum = TileWeights(tile.scores + r * kTileKeys, maxima[r], probs);
    tile.sum[r] = tile.sum[r] * tile.rescale[r] + sum;
  }
}

}  // namespace

const AttentionKernels* ArmBf16AttentionKernels() {
  static const AttentionKernels kernels = {.name = "bfmmla",
                                           .operand_size = sizeof(uint16_t),
                                           .pack_query = PackQuery,
                                           .pack_keys = PackKeys,
                                           .pack_values = PackValues,
                                           .multiply = Multiply,
                                           .softmax = Softmax};
  return GetCpuFeatures().bf16 ? &kernels : nullptr;
}

}  // namespace talon
