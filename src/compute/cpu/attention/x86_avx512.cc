// Attention over bf16 with AVX-512's float arithmetic: queries and weights stay float, and a cache
// in units of pairs (kv_units.h) needs a shift and a mask to become float, in registers, for all
// rows of a block. Each sum adds one product after the other, in order of depth. Beside AMX, a few
// rows are multiplied here too, rounded and added as AMX does.
#include "compute/cpu/attention/x86_avx512.h"

#include <immintrin.h>

#include <array>
#include <cstring>
#include <utility>

#include "compute/cpu/attention/kernels.h"
#include "compute/cpu/attention/x86_amx.h"
#include "compute/cpu/cpu_features.h"

namespace talon {
namespace x86_avx512 {
namespace {

constexpr int kLanes = 16;
constexpr int kUnitPairs = 4;  // a unit's tokens in pairs
constexpr int kPairBytes = 4;  // two neighbours in depth
constexpr int kFourLines = 4 * 64;

#define TALON_INLINE __attribute__((always_inline))
#define TALON_UNROLL _Pragma("GCC unroll 16")

// Sixteen columns, or eight and zeros.
template <bool kHalf>
TALON_INLINE inline __m512i Load(const int32_t* from) {
  if constexpr (kHalf) {
    return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  return _mm512_loadu_si512(from);
}

// Where a block of columns finds a pair of depth. Load(pair, v) is its v-th vector.

// Stripes of sixteen columns over the whole depth.
struct PackedColumns {
  const int32_t* b;
  int64_t stripe;  // elements of a stripe

  PackedColumns From(int col) const { return {b + col / kLanes * stripe, stripe}; }
  void Fetch(int /*pair*/, int /*cols*/) const {}
  template <bool kHalf>
  TALON_INLINE __m512i Vector(int pair, int v) const {
    return Load<kHalf>(b + v * stripe + pair * kLanes);
  }
};

// A unit is eight columns.
struct KeyColumns {
  const void* const* units;
  const void* const* ahead;

  KeyColumns From(int col) const { return {units + col / kUnitKeys, ahead + col / kUnitKeys}; }
  // Four lines of each unit, every eighth pair.
  void Fetch(int pair, int cols) const {
    constexpr int kPairs = kFourLines / (kUnitKeys * kPairBytes);
    if (pair % kPairs != 0) return;
    for (int u = 0; u < cols / kUnitKeys; ++u) {
      if (ahead[u] == nullptr) continue;
      FetchAhead(static_cast<const uint8_t*>(ahead[u]) + pair / kPairs * kFourLines, kFourLines);
    }
  }
  template <bool kHalf>
  TALON_INLINE __m512i Vector(int pair, int v) const {
    const __m512i low = Load<true>(At(2 * v, pair));
    if constexpr (kHalf) return low;
    return _mm512_inserti64x4(
        low, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(At(2 * v + 1, pair))), 1);
  }

 private:
  TALON_INLINE const int32_t* At(int unit, int pair) const {
    return static_cast<const int32_t*>(units[unit]) + pair * kUnitKeys;
  }
};

// A unit is four pairs of depth.
struct ValueColumns {
  const void* const* units;
  const void* const* ahead;
  int64_t dim;
  int first_col = 0;

  ValueColumns From(int col) const { return {units, ahead, dim, col}; }
  void Fetch(int pair, int cols) const {
    const void* later = ahead[pair / kUnitPairs];
    if (later == nullptr) return;
    FetchAhead(
        static_cast<const uint8_t*>(later) + (pair % kUnitPairs * dim + first_col) * kPairBytes,
        int64_t{cols} * kPairBytes);
  }
  template <bool kHalf>
  TALON_INLINE __m512i Vector(int pair, int v) const {
    const auto* unit = static_cast<const int32_t*>(units[pair / kUnitPairs]);
    return Load<kHalf>(unit + pair % kUnitPairs * dim + first_col + v * kLanes);
  }
};

// Float operands, one product after the other.
struct InOrder {
  using Operand = float;
  static constexpr bool kInGroups = false;
  static constexpr int kMaxVectors = 8;  // by two rows, sums fit the registers

  static int GroupPairs(const TileProduct& product) { return product.depth / 2; }
  TALON_INLINE static __m512 First(const float* pair) { return _mm512_set1_ps(pair[0]); }
  TALON_INLINE static __m512 Second(const float* pair) { return _mm512_set1_ps(pair[1]); }
};

// bf16 operands, as AMX adds their products: the even ones of a group and its odd ones, each from
// zero, then both, then that to what was there.
struct InGroups {
  using Operand = uint16_t;
  static constexpr bool kInGroups = true;
  static constexpr int kMaxVectors = 4;

  static int GroupPairs(const TileProduct& product) { return x86_amx::GroupOf(product) / 2; }
  TALON_INLINE static __m512 First(const uint16_t* pair) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(Both(pair), 16));
  }
  TALON_INLINE static __m512 Second(const uint16_t* pair) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
    return _mm512_castsi512_ps(_mm512_and_si512(Both(pair), upper));
  }

 private:
  TALON_INLINE static __m512i Both(const uint16_t* pair) {
    int32_t both;
    std::memcpy(&both, pair, sizeof(both));
    return _mm512_set1_epi32(both);
  }
};

// kRows rows by kVectors vectors of `out`, from `row` and `col` on, held in registers over the
// whole depth.
template <class Arithmetic, int kRows, int kVectors, bool kHalf, class Columns>
void MultiplyBlock(const TileProduct& product, int row, int col, const Columns& all) {
  constexpr __mmask16 kMask = kHalf ? 0x00FF : 0xFFFF;
  const Columns columns = all.From(col);
  using Operand = typename Arithmetic::Operand;
  const auto* a = static_cast<const Operand*>(product.a) + row * product.a_stride;
  a += product.first_depth;
  float* out = product.out + row * product.out_stride + product.first_col + col;
  __m512 sums[kRows][kVectors];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm512_setzero_ps();
      if (product.rescale == nullptr) continue;
      const __m512 held = _mm512_maskz_loadu_ps(kMask, out + r * product.out_stride + v * kLanes);
      sums[r][v] = _mm512_mul_ps(held, _mm512_set1_ps(product.rescale[row + r]));
    }
  }
  const bool fetches = row == product.first_row;
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  const int pairs = product.depth / 2;
  const int group = Arithmetic::GroupPairs(product);
  for (int begin = 0; begin < pairs; begin += group) {
    __m512 evens[kRows][kVectors], odds[kRows][kVectors];
    TALON_UNROLL
    for (int r = 0; Arithmetic::kInGroups && r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) evens[r][v] = odds[r][v] = _mm512_setzero_ps();
    }
    for (int pair = begin; pair < begin + group; ++pair) {
      if (fetches) columns.Fetch(pair, kHalf ? kUnitKeys : kVectors * kLanes);
      __m512 even[kVectors], odd[kVectors];
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const __m512i both = columns.template Vector<kHalf>(pair, v);
        even[v] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
        odd[v] = _mm512_castsi512_ps(_mm512_and_si512(both, upper));
      }
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512 first = Arithmetic::First(a + r * product.a_stride + 2 * pair);
        const __m512 second = Arithmetic::Second(a + r * product.a_stride + 2 * pair);
        auto& even_sums = Arithmetic::kInGroups ? evens : sums;
        auto& odd_sums = Arithmetic::kInGroups ? odds : sums;
        TALON_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          even_sums[r][v] = _mm512_fmadd_ps(first, even[v], even_sums[r][v]);
          odd_sums[r][v] = _mm512_fmadd_ps(second, odd[v], odd_sums[r][v]);
        }
      }
    }
    TALON_UNROLL
    for (int r = 0; Arithmetic::kInGroups && r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_add_ps(sums[r][v], _mm512_add_ps(evens[r][v], odds[r][v]));
      }
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(out + r * product.out_stride + v * kLanes, kMask, sums[r][v]);
    }
  }
}

// All rows by the same columns, which stay in the first-level cache.
template <class Arithmetic, int kVectors, int kMaxRows, bool kHalf, class Columns>
void MultiplyRows(const TileProduct& product, int col, const Columns& columns) {
  using Function = void (*)(const TileProduct&, int, int, const Columns&);
  static constexpr auto kByRows = []<int... kRows>(std::integer_sequence<int, kRows...>) {
    return std::array<Function, kMaxRows>{
        MultiplyBlock<Arithmetic, kRows + 1, kVectors, kHalf, Columns>...};
  }
  (std::make_integer_sequence<int, kMaxRows>());
  const int end = product.first_row + product.rows;
  for (int row = product.first_row; row < end;) {
    const int left = end - row;
    const int rows = CeilDiv(left, CeilDiv(left, kMaxRows));  // about equal shares
    kByRows[rows - 1](product, row, col, columns);
    row += rows;
  }
}

// Blocks of kVectors vectors of columns, then smaller ones.
template <class Arithmetic, int kVectors, int kMaxRows, class Columns>
void MultiplyColumns(const TileProduct& product, int col, const Columns& columns) {
  for (; col + kVectors * kLanes <= product.cols; col += kVectors * kLanes) {
    MultiplyRows<Arithmetic, kVectors, kMaxRows, false>(product, col, columns);
  }
  if constexpr (kVectors > 1) {
    MultiplyColumns<Arithmetic, kVectors / 2, kMaxRows>(product, col, columns);
  } else if (col < product.cols) {
    MultiplyRows<Arithmetic, 1, kMaxRows, true>(product, col, columns);
  }
}

// Registers hold so many sums; few rows take more columns. Wide blocks do with the fewest
// instructions, which bound them: what is loaded for a row is multiplied four times.
template <class Arithmetic, class Columns>
void MultiplyAll(const TileProduct& product, const Columns& columns) {
  constexpr int kVectors = Arithmetic::kMaxVectors;
  if (product.rows <= 2) return MultiplyColumns<Arithmetic, kVectors, 2>(product, 0, columns);
  MultiplyColumns<Arithmetic, kVectors / 2, 4>(product, 0, columns);
}

void Multiply(const TileProduct& product) {
  const int64_t stripe = int64_t{product.b_depth} / 2 * kLanes;
  MultiplyAll<InOrder>(product, PackedColumns{static_cast<const int32_t*>(product.b), stripe});
}

void MultiplyKeys(const KvTile& keys, const TileProduct& product) {
  MultiplyAll<InOrder>(product, KeyColumns{keys.units, keys.ahead});
}

void MultiplyValues(const KvTile& values, const TileProduct& product) {
  MultiplyAll<InOrder>(product, ValueColumns{values.units, values.ahead, product.b_cols});
}

// [pairs of dim][8 tokens] of two elements.
void OrderKeys(const void* vectors, int head_dim, void* unit) {
  const auto* keys = static_cast<const uint16_t*>(vectors);
  auto* out = static_cast<uint16_t*>(unit);
  for (int d = 0; d < PaddedDim(head_dim); d += 2) {
    for (int token = 0; token < kUnitKeys; ++token, out += 2) {
      const uint16_t* key = keys + token * head_dim;
      out[0] = d < head_dim ? key[d] : 0;
      out[1] = d + 1 < head_dim ? key[d + 1] : 0;
    }
  }
}

// [pairs of tokens][dim] of two elements.
void OrderValues(const void* vectors, int head_dim, void* unit) {
  auto* out = static_cast<uint16_t*>(unit);
  for (int pair = 0; pair < kUnitPairs; ++pair) {
    const auto* first = static_cast<const uint16_t*>(vectors) + 2 * pair * head_dim;
    const uint16_t* second = first + head_dim;
    for (int d = 0; d < PaddedDim(head_dim); ++d, out += 2) {
      out[0] = d < head_dim ? first[d] : 0;
      out[1] = d < head_dim ? second[d] : 0;
    }
  }
}

// A unit of keys is half of a stripe.
void PackKeys(const KvTile& tile, void* b) {
  constexpr int kRun = kUnitKeys * kPairBytes;
  const int pairs = PaddedDim(tile.head_dim) / 2;
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], int64_t{pairs} * kRun);
    const auto* unit = static_cast<const uint8_t*>(tile.units[u]);
    auto* out = static_cast<uint8_t*>(b) + (u / 2 * 2 * pairs + u % 2) * kRun;
    for (int i = 0; i < pairs; ++i, unit += kRun, out += 2 * kRun) std::memcpy(out, unit, kRun);
  }
}

// A unit of values has four pairs of each stripe.
void PackValues(const KvTile& tile, void* b) {
  constexpr int kRun = kLanes * kPairBytes;
  constexpr int64_t kStripe = kTileKeys / 2 * kRun;
  const int dim = PaddedDim(tile.head_dim);
  for (int u = 0; u < tile.num_units; ++u) {
    FetchAhead(tile.ahead[u], int64_t{kUnitPairs} * dim * kPairBytes);
    const auto* unit = static_cast<const uint8_t*>(tile.units[u]);
    auto* out = static_cast<uint8_t*>(b) + u * kUnitPairs * kRun;
    for (int pair = 0; pair < kUnitPairs; ++pair, unit += dim * kPairBytes, out += kRun) {
      int d = 0;
      for (; d + kLanes <= dim; d += kLanes) {
        std::memcpy(out + d / kLanes * kStripe, unit + d * kPairBytes, kRun);
      }
      if (d < dim) std::memcpy(out + d / kLanes * kStripe, unit + d * kPairBytes, kRun / 2);
    }
  }
}

AttentionKernels MakeKernels() {
  AttentionKernels kernels = PortableAttentionKernels(DType::kF32);  // softmax and queries
  kernels.name = "avx512";
  kernels.pack_keys = PackKeys;
  kernels.pack_values = PackValues;
  kernels.multiply = Multiply;
  kernels.unit_layout = KvLayout::kUnitsOfPairs;
  kernels.order_keys = OrderKeys;
  kernels.order_values = OrderValues;
  kernels.expand = ExpandUnit;
  kernels.direct_rows = 24;
  kernels.multiply_keys = MultiplyKeys;
  kernels.multiply_values = MultiplyValues;
  return kernels;
}

// As AMX does, while it lasts: what is denormal is zero.
class ZeroDenormals {
 public:
  ZeroDenormals() { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | kDenormalsAreZero); }
  ~ZeroDenormals() { _mm_setcsr(before_); }
  ZeroDenormals(const ZeroDenormals&) = delete;
  ZeroDenormals& operator=(const ZeroDenormals&) = delete;

 private:
  static constexpr unsigned kDenormalsAreZero = 0x40;
  const unsigned before_ = _mm_getcsr();
};

}  // namespace

void MultiplyKeysInGroups(const KvTile& keys, const TileProduct& product) {
  const ZeroDenormals scope;
  MultiplyAll<InGroups>(product, KeyColumns{keys.units, keys.ahead});
}

void MultiplyValuesInGroups(const KvTile& values, const TileProduct& product) {
  const ZeroDenormals scope;
  MultiplyAll<InGroups>(product, ValueColumns{values.units, values.ahead, product.b_cols});
}

}  // namespace x86_avx512

const AttentionKernels* const* NativeAttentionKernels() {
  static const AttentionKernels avx512 = x86_avx512::MakeKernels();
  static const AttentionKernels amx = x86_amx::WithAmx(avx512);
  static const AttentionKernels* const with_amx[] = {&amx, &avx512, nullptr};
  const CpuFeatures& has = GetCpuFeatures();
  if (!has.avx512) return with_amx + 2;
  return has.amx_bf16 && has.avx512_bf16 ? with_amx : with_amx + 1;
}

}  // namespace talon
