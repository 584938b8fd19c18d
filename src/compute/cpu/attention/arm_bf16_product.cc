// The products of attention with bfmmla (arm_bf16-inl.h), whatever the right operand comes from:
// units of the cache where they lie or, for many rows, packed. A sum takes the same groups in the
// same order either way, so its bits are the same.
//
// A type of Columns says where the operand comes from. ForEachStep<kStripes>(depth, f) calls
// f(step, groups) with the groups of that many stripes for each of the kSteps times four of depth
// from `depth` on. From(stripe) is the rest of the columns.
#include <algorithm>

#include "base/math.h"
#include "compute/cpu/attention/arm_bf16-inl.h"

#define TALON_INLINE __attribute__((always_inline))

namespace talon::arm_bf16 {
namespace {

constexpr int kMaxPairs = 6;  // their sums fit in registers beside the groups

// How the sums of a product start: at zero, at what `out` holds, or at that times the row's factor.
enum class Start { kZero, kKeep, kRescale };

// Some pairs of rows of a product.
struct RowPairs {
  const uint16_t* a = nullptr;  // rows of the first pair, from the first of the product's depth on
  int64_t a_stride = 0;         // from pair to pair
  float* out = nullptr;  // rows of the first pair, from the first of the product's columns on
  int64_t out_stride = 0;
  const float* rescale = nullptr;  // [2 * pairs]

  RowPairs FromColumn(int col) const {
    RowPairs pairs = *this;
    pairs.out += 2 * col;
    return pairs;
  }
};

RowPairs PairsAt(const TileProduct& product, int row) {
  return {.a = static_cast<const uint16_t*>(product.a) + row * product.a_stride +
               2 * product.first_depth,
          .a_stride = 2 * product.a_stride,
          .out = product.out + row * product.out_stride + 2 * product.first_col,
          .out_stride = 2 * product.out_stride,
          .rescale = product.rescale == nullptr ? nullptr : product.rescale + row};
}

template <int kPairs, int kSums>
struct Sums {
  float32x4_t of[kPairs][kSums];

  template <Start kStart>
  TALON_INLINE void Load(const RowPairs& pairs) {
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      float32x4_t factors = vdupq_n_f32(1);
      if constexpr (kStart == Start::kRescale) {
        factors = vcombine_f32(vld1_dup_f32(pairs.rescale + 2 * p),
                               vld1_dup_f32(pairs.rescale + 2 * p + 1));
      }
#pragma GCC unroll 16
      for (int c = 0; c < kSums; ++c) {
        of[p][c] = vdupq_n_f32(0);
        if constexpr (kStart != Start::kZero) {
          of[p][c] = vld1q_f32(pairs.out + p * pairs.out_stride + 4 * c);
        }
        if constexpr (kStart == Start::kRescale) of[p][c] = vmulq_f32(of[p][c], factors);
      }
    }
  }

  TALON_INLINE void Store(const RowPairs& pairs) const {
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 16
      for (int c = 0; c < kSums; ++c) {
        vst1q_f32(pairs.out + p * pairs.out_stride + 4 * c, of[p][c]);
      }
    }
  }
};

// sum += a * b. Not the intrinsic, for which GCC 12 copies sums from register to register.
TALON_INLINE inline void Bfmmla(float32x4_t& sum, uint16x8_t a, uint16x8_t b) {
  asm("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
}

// kPairs pairs of rows by kStripes stripes of `out`, held in registers over the whole depth. Rows
// are loaded where they are used: operands that have just been loaded need no port of the register
// file, of which there are too few for all three operands of every instruction.
template <int kPairs, int kStripes, Start kStart, class Columns>
inline void MultiplyBlock(const RowPairs& pairs, const Columns& columns, int depth) {
  Sums<kPairs, kStripes * kStripe> sums;
  sums.template Load<kStart>(pairs);
  const uint16_t* a = pairs.a;
  for (int d = 0; d < depth; d += 4 * Columns::kSteps, a += Columns::kSteps * kGroup) {
    columns.template ForEachStep<kStripes>(d, [&](int step, const uint16x8_t* groups) TALON_INLINE {
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) {
        const uint16x8_t rows = Load8(a + p * pairs.a_stride + step * kGroup);
#pragma GCC unroll 16
        for (int c = 0; c < kStripes * kStripe; ++c) {
          Bfmmla(sums.of[p][c], rows, groups[c]);
        }
      }
    });
  }
  sums.Store(pairs);
}

template <int kPairs, Start kStart, class Columns>
__attribute__((noinline)) void MultiplyStripes(const TileProduct& product, const RowPairs& pairs,
                                               const Columns& columns) {
  constexpr int kWide = kPairs <= 2 ? 2 : 1;
  const int stripes = product.cols / kStripeCols;
  int s = 0;
  for (; s + kWide <= stripes; s += kWide) {
    MultiplyBlock<kPairs, kWide, kStart>(pairs.FromColumn(s * kStripeCols), columns.From(s),
                                         product.depth);
  }
  if constexpr (kWide > 1) {
    if (s < stripes) {
      MultiplyBlock<kPairs, 1, kStart>(pairs.FromColumn(s * kStripeCols), columns.From(s),
                                       product.depth);
    }
  }
}

template <int kPairs, class Columns>
void MultiplyPairs(const TileProduct& product, const RowPairs& pairs, const Columns& columns) {
  if (pairs.rescale == nullptr) {
    MultiplyStripes<kPairs, Start::kZero>(product, pairs, columns);
  } else if (std::any_of(pairs.rescale, pairs.rescale + 2 * kPairs,
                         [](float factor) { return factor != 1.0f; })) {
    MultiplyStripes<kPairs, Start::kRescale>(product, pairs, columns);
  } else {  // the running maximum seldom changes
    MultiplyStripes<kPairs, Start::kKeep>(product, pairs, columns);
  }
}

// MultiplyPairs<pairs>. REQUIRES: 1 <= pairs <= kMost.
template <int kMost, class Columns>
void MultiplyUpTo(int pairs, const TileProduct& product, const RowPairs& rows,
                  const Columns& columns) {
  if (pairs == kMost) {
    MultiplyPairs<kMost>(product, rows, columns);
  } else if constexpr (kMost > 1) {
    MultiplyUpTo<kMost - 1>(pairs, product, rows, columns);
  }
}

// One row of a pair, in a copy of the pair's sums: the other row's stay as they are.
template <class Columns>
void MultiplySingle(const TileProduct& product, int row, const Columns& columns) {
  TileProduct stripe = product;
  stripe.cols = kStripeCols;
  float sums[2 * kStripeCols];
  for (int col = 0; col < product.cols; col += kStripeCols) {
    RowPairs pair = PairsAt(product, row / 2 * 2).FromColumn(col);
    float* const kept = pair.out;
    std::copy_n(kept, 2 * kStripeCols, sums);
    pair.out = sums;
    MultiplyPairs<1>(stripe, pair, columns.From(col / kStripeCols));
    for (int i = row % 2 * 2; i < 2 * kStripeCols; i += 4) std::copy_n(sums + i, 2, kept + i);
  }
}

template <class Columns>
void MultiplyRows(const TileProduct& product, const Columns& columns) {
  int row = product.first_row;
  int end = product.first_row + product.rows;
  if (row % 2 == 1) MultiplySingle(product, row++, columns);
  const bool odd_end = end % 2 == 1 && end > row;
  end -= end % 2;
  while (row < end) {
    const int left = (end - row) / 2;
    const int pairs = CeilDiv(left, CeilDiv(left, kMaxPairs));  // about equal shares
    MultiplyUpTo<kMaxPairs>(pairs, product, PairsAt(product, row), columns);
    row += 2 * pairs;
  }
  if (odd_end) MultiplySingle(product, end, columns);
}

// Bytes of eight dimensions of a unit: the share of the next unit that is prefetched
// meanwhile.
constexpr int64_t kEightBytes = kUnitKeys * 8 * sizeof(uint16_t);
constexpr int kHalfUnit = kStripe * kGroup;  // elements of a stripe by four of depth

template <int kStripes>
inline void FetchShare(const void* ahead, int dim) {
  if (ahead == nullptr) return;
  FetchAhead(static_cast<const uint8_t*>(ahead) + dim / 8 * kEightBytes, kStripes * kEightBytes);
}

// Calls f(step, groups) for both halves of some stripes' next eight of depth.
template <int kStripes, class F>
TALON_INLINE inline void ForBothHalves(const uint16_t* const* stripes, F f) {
#pragma GCC unroll 2
  for (int step = 0; step < 2; ++step) {
    uint16x8_t groups[kStripes * kStripe];
#pragma GCC unroll 16
    for (int g = 0; g < kStripes * kStripe; ++g) {
      groups[g] = Load8(stripes[g / kStripe] + step * kHalfUnit + g % kStripe * kGroup);
    }
    f(step, groups);
  }
}

// A stripe is a unit of keys, the depth their dimensions.
struct KeyColumns {
  const void* const* units;
  const void* const* ahead;

  static constexpr int kSteps = 2;
  KeyColumns From(int first) const { return {units + first, ahead + first}; }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    const uint16_t* stripes[kStripes];
#pragma GCC unroll 4
    for (int s = 0; s < kStripes; ++s) {
      FetchShare<1>(ahead[s], depth);
      stripes[s] = static_cast<const uint16_t*>(units[s]) + depth * kStripeCols;
    }
    ForBothHalves<kStripes>(stripes, f);
  }
};

// A stripe is eight dimensions, the depth the keys, unit by unit.
struct ValueColumns {
  const void* const* units;
  const void* const* ahead;
  int first_dim = 0;

  static constexpr int kSteps = 2;
  ValueColumns From(int first) const { return {units, ahead, first_dim + first * kStripeCols}; }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    const int unit = depth / kUnitKeys;
    const uint16_t* stripes[kStripes];
    FetchShare<kStripes>(ahead[unit], first_dim);
#pragma GCC unroll 4
    for (int s = 0; s < kStripes; ++s) {
      stripes[s] =
          static_cast<const uint16_t*>(units[unit]) + (first_dim + s * kStripeCols) * kUnitKeys;
    }
    ForBothHalves<kStripes>(stripes, f);
  }
};

// A stripe is contiguous over the whole depth.
struct PackedColumns {
  const uint16_t* b;
  int64_t stripe;  // elements from stripe to stripe

  static constexpr int kSteps = 1;
  PackedColumns From(int first) const { return {b + first * stripe, stripe}; }

  template <int kStripes, class F>
  TALON_INLINE void ForEachStep(int depth, F f) const {
    const uint16_t* from = b + depth * kStripeCols;
    uint16x8_t groups[kStripes * kStripe];
#pragma GCC unroll 16
    for (int g = 0; g < kStripes * kStripe; ++g) {
      groups[g] = Load8(from + g / kStripe * stripe + g % kStripe * kGroup);
    }
    f(0, groups);
  }
};

}  // namespace

void Multiply(const TileProduct& product) {
  MultiplyRows(product, PackedColumns{static_cast<const uint16_t*>(product.b),
                                      int64_t{product.b_depth} * kStripeCols});
}

void MultiplyKeys(const KvTile& keys, const TileProduct& product) {
  MultiplyRows(product, KeyColumns{keys.units, keys.ahead});
}

void MultiplyValues(const KvTile& values, const TileProduct& product) {
  MultiplyRows(product, ValueColumns{values.units, values.ahead});
}

}  // namespace talon::arm_bf16
