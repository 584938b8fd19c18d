#include "compute/cpu/attention/kernels.h"

// Arm machines with SVE run NEON: the register blocks need vectors of a known size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/attention/kernels.cc"
#include <hwy/foreach_target.h>  // NOLINT: must precede the SIMD headers
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {

using DF = hn::CappedTag<float, 8>;  // columns come in multiples of 8
using VF = hn::Vec<DF>;
using DS = hn::CappedTag<float, 16>;  // softmax: 128 keys
using VS = hn::Vec<DS>;
using D4 = hn::CappedTag<float, 4>;

void PackQuery(const float* q, int head_dim, float scale, void* out) {
  auto* packed = static_cast<float*>(out);
  for (int i = 0; i < head_dim; ++i) packed[i] = q[i] * scale;
  std::fill(packed + head_dim, packed + PaddedDim(head_dim), 0.0f);
}

// out[d * 64 + key] = in[key * head_dim + d] for 4 keys and all d.
template <typename T>
HWY_INLINE void TransposeFourKeys(const T* HWY_RESTRICT in, int head_dim, float* HWY_RESTRICT out) {
  int d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  for (; d + 4 <= head_dim; d += 4) {
    const auto r0 = LoadAsF32(d4, in + d);
    const auto r1 = LoadAsF32(d4, in + head_dim + d);
    const auto r2 = LoadAsF32(d4, in + 2 * head_dim + d);
    const auto r3 = LoadAsF32(d4, in + 3 * head_dim + d);
    const auto low01 = hn::InterleaveLower(d4, r0, r1);
    const auto low23 = hn::InterleaveLower(d4, r2, r3);
    const auto high01 = hn::InterleaveUpper(d4, r0, r1);
    const auto high23 = hn::InterleaveUpper(d4, r2, r3);
    float* column = out + d * kTileKeys;
    hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, column);
    hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, column + kTileKeys);
    hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, column + 2 * kTileKeys);
    hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, column + 3 * kTileKeys);
  }
#endif
  for (; d < head_dim; ++d) {
    for (int key = 0; key < 4; ++key) {
      out[d * kTileKeys + key] = ScalarAsF32(in + key * head_dim + d);
    }
  }
}

template <typename T>
void PackKeys(const KvTile& tile, void* b) {
  auto* out = static_cast<float*>(b);
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * sizeof(T));
    const T* in = static_cast<const T*>(tile.units[u]);
    TransposeFourKeys(in, tile.head_dim, out + u * kUnitKeys);
    TransposeFourKeys(in + 4 * tile.head_dim, tile.head_dim, out + u * kUnitKeys + 4);
  }
  std::fill(out + tile.head_dim * kTileKeys, out + PaddedDim(tile.head_dim) * kTileKeys, 0.0f);
}

template <typename T>
void PackValues(const KvTile& tile, void* b) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int dim = PaddedDim(tile.head_dim);
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], kUnitKeys * tile.head_dim * sizeof(T));
    for (int key = 0; key < kUnitKeys; ++key) {
      const T* in = static_cast<const T*>(tile.units[u]) + key * tile.head_dim;
      float* out = static_cast<float*>(b) + (u * kUnitKeys + key) * dim;
      int d = 0;
      for (; d + lanes <= tile.head_dim; d += lanes) hn::StoreU(LoadAsF32(df, in + d), df, out + d);
      for (; d < tile.head_dim; ++d) out[d] = ScalarAsF32(in + d);
      std::fill(out + tile.head_dim, out + dim, 0.0f);
    }
  }
}

// kRows rows by kVectors vectors of `out`, held in registers over the whole depth.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyBlock(const TileProduct& product, int row, int col) {
  const DF d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const float* HWY_RESTRICT a =
      static_cast<const float*>(product.a) + row * product.a_stride + product.first_depth;
  const float* HWY_RESTRICT b = static_cast<const float*>(product.b) + col;
  float* out = product.out + row * product.out_stride + product.first_col + col;
  VF sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = product.rescale == nullptr
                       ? hn::Zero(d)
                       : hn::Mul(hn::LoadU(d, out + r * product.out_stride + v * lanes),
                                 hn::Set(d, product.rescale[row + r]));
    }
  }
  for (int i = 0; i < product.depth; ++i, b += product.b_cols) {
    VF columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(d, a[r * product.a_stride + i]);
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, columns[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, out + r * product.out_stride + v * lanes);
    }
  }
}

template <int kRows>
void MultiplyRows(const TileProduct& product, int row) {
  const int lanes = static_cast<int>(hn::Lanes(DF()));
  int col = 0;
  for (; col + 4 * lanes <= product.cols; col += 4 * lanes)
    MultiplyBlock<kRows, 4>(product, row, col);
  for (; col < product.cols; col += lanes) MultiplyBlock<kRows, 1>(product, row, col);
}

void Multiply(const TileProduct& product) {
  int row = product.first_row;
  const int end = product.first_row + product.rows;
  for (; row + 4 <= end; row += 4) MultiplyRows<4>(product, row);
  for (; row + 2 <= end; row += 2) MultiplyRows<2>(product, row);
  for (; row < end; ++row) MultiplyRows<1>(product, row);
}

HWY_INLINE float RowMax(const float* scores) {
  const DS d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  VS even = hn::LoadU(d, scores);
  VS odd = hn::LoadU(d, scores + lanes);
  for (int i = 2 * lanes; i < kTileKeys; i += 2 * lanes) {
    even = hn::Max(even, hn::LoadU(d, scores + i));
    odd = hn::Max(odd, hn::LoadU(d, scores + i + lanes));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(even, odd)));
}

// Writes the weights of one row's tile and returns their sum; in place if they are the same array.
// Two vectors at a time and side by
// side, because one alone is a long chain of dependent operations.
HWY_INLINE float TileWeights(const float* scores, float max, float* probs) {
  const DS d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const VS base = hn::Set(d, max);
  VS sum0 = hn::Zero(d);
  VS sum1 = hn::Zero(d);
  for (int i = 0; i < kTileKeys; i += 2 * lanes) {
    const VS s0 = hn::LoadU(d, scores + i);
    const VS s1 = hn::LoadU(d, scores + i + lanes);
    const VS w0 = Exp2(d, hn::Sub(s0, base));
    const VS w1 = Exp2(d, hn::Sub(s1, base));
    hn::StoreU(w0, d, probs + i);
    hn::StoreU(w1, d, probs + i + lanes);
    sum0 = hn::Add(sum0, w0);
    sum1 = hn::Add(sum1, w1);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// In three loops over the rows, whose iterations do not wait for each other.
void Softmax(const TileSoftmax& tile) {
  const hn::CappedTag<float, 1> d1;
  float maxima[kMaxTileRows];
  for (int r = 0; r < tile.rows; ++r) {
    const int count = tile.counts[r];
    float* scores = tile.scores + r * kTileKeys;
    std::fill(scores, scores + tile.firsts[r], -HUGE_VALF);
    if (count < kTileKeys) std::fill(scores + count, scores + kTileKeys, -HUGE_VALF);
    maxima[r] = std::max(tile.max[r], RowMax(scores));
  }
  for (int r = 0; r < tile.rows; ++r) {
    if (tile.counts[r] == 0) continue;
    tile.rescale[r] = hn::GetLane(Exp2(d1, hn::Set(d1, tile.max[r] - maxima[r])));
    tile.max[r] = maxima[r];
  }
  for (int r = 0; r < tile.rows; ++r) {
    if (tile.counts[r] == 0) continue;
    auto* probs = static_cast<float*>(tile.probs) + r * kTileKeys;
    const float sum = TileWeights(tile.scores + r * kTileKeys, maxima[r], probs);
    tile.sum[r] = tile.sum[r] * tile.rescale[r] + sum;
  }
}

template <typename T>
const AttentionKernels* Kernels() {
  static const AttentionKernels kernels = {.name = "portable",
                                           .operand_size = sizeof(float),
                                           .row_pairs = false,
                                           .pack_query = PackQuery,
                                           .pack_keys = PackKeys<T>,
                                           .pack_values = PackValues<T>,
                                           .multiply = Multiply,
                                           .softmax = Softmax};
  return &kernels;
}

const AttentionKernels* KernelsFor(DType dtype) {
  if (dtype == DType::kF32) return Kernels<float>();
  if (dtype == DType::kF16) return Kernels<hwy::float16_t>();
  TALON_CHECK(dtype == DType::kBF16, "attention: no cache of {}", DTypeName(dtype));
  return Kernels<hwy::bfloat16_t>();
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {

HWY_EXPORT(KernelsFor);

const AttentionKernels& PortableAttentionKernels(DType dtype) {
  return *HWY_DYNAMIC_DISPATCH(KernelsFor)(dtype);
}

const AttentionKernels& GetAttentionKernels(DType dtype) {
  const AttentionKernels* native = dtype == DType::kBF16 ? *NativeAttentionKernels() : nullptr;
  return native != nullptr ? *native : PortableAttentionKernels(dtype);
}

}  // namespace talon
#endif  // HWY_ONCE
