// The product of attention with bfmmla (attention_arm_bf16-inl.h), whatever the right operand comes
// from: packed, or keys and values as they lie in the cache. A sum takes the same groups in the
// same order either way, so its bits are the same.
//
// A type of Columns says where the operand comes from. ForEachStep<kStripes>(depth, f) calls
// f(step, groups) with the groups of that many stripes for each of the kSteps times four of depth
// from `depth` on. From(stripe) is the rest of the columns. kMaxPairs is the most pairs of rows
// whose sums fit in registers beside the groups. Such types live in the including file's anonymous
// namespace, so no instance is shared between files compiled with different flags.
#ifndef TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_PRODUCT_INL_H_
#define TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_PRODUCT_INL_H_

#include <algorithm>

#include "base/math.h"
#include "compute/cpu/attention/arm_bf16-inl.h"

#define TALON_INLINE __attribute__((always_inline))

namespace talon::arm_bf16 {
namespace {

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
    const int pairs = CeilDiv(left, CeilDiv(left, Columns::kMaxPairs));  // about equal shares
    MultiplyUpTo<Columns::kMaxPairs>(pairs, product, PairsAt(product, row), columns);
    row += 2 * pairs;
  }
  if (odd_end) MultiplySingle(product, end, columns);
}

}  // namespace
}  // namespace talon::arm_bf16

#endif  // TALON_COMPUTE_CPU_ATTENTION_ARM_BF16_PRODUCT_INL_H_
