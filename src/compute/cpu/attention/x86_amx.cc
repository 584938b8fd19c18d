// Attention over bf16 with AMX: queries and weights are rounded to bf16, sums are float. Keys and
// values in units of pairs (kv_units.h) are what AMX's right operand wants, packed or as they lie.
//
// An instruction adds to 16 x 16 sums the products of a group, up to 16 pairs of depth (GroupOf).
// A few rows are bound by loads: they take AVX-512's arithmetic, with products added in that order.
#include "compute/cpu/attention/x86_amx.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "compute/cpu/attention/x86_avx512.h"

namespace talon::x86_amx {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileCols = 16;
constexpr int kPairBytes = 4;  // two neighbours in depth
constexpr int kUnitPairs = 4;  // a unit's tokens in pairs
constexpr int kFewRows = 8;    // at most, faster without AMX

// GCC does not know that AMX's instructions read memory: what was written must be there first.
inline void Publish(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

// Rows and columns of the block at hand: two tiles each, the second may be empty.
struct BlockShape {
  int rows[2], cols[2];
  int group;  // GroupOf

  bool operator==(const BlockShape&) const = default;
};

BlockShape ShapeOf(int rows, int cols, int width, int group) {
  return {{std::min(rows, kTileRows), std::clamp(rows - kTileRows, 0, kTileRows)},
          {std::min(cols, width), std::clamp(cols - width, 0, width)},
          group};
}

// Registers 0 to 3 are sums, [2 x rows][2 x columns], 4 and 5 rows, 6 and 7 columns.
void Configure(const BlockShape& shape) {
  struct {
    uint8_t palette = 1, start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  static_assert(sizeof(config) == 64);
  const auto set = [&](int tile, int rows, int row_bytes) {
    if (rows == 0 || row_bytes == 0) return;
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 2; ++c) {
      set(2 * r + c, shape.rows[r], shape.cols[c] * static_cast<int>(sizeof(float)));
    }
    set(4 + r, shape.rows[r], shape.group * static_cast<int>(sizeof(uint16_t)));
  }
  for (int c = 0; c < 2; ++c) set(6 + c, shape.group / 2, shape.cols[c] * kPairBytes);
  Publish(&config);
  _tile_loadconfig(&config);
}

// Where a tile of columns finds the pairs of a group: At(col, pair), then every `stride` bytes.

// Stripes of sixteen columns over the whole depth.
struct PackedColumns {
  static constexpr int kWidth = kTileCols;
  const uint8_t* b;
  int64_t stripe;  // bytes
  int64_t stride = kTileCols * kPairBytes;

  const uint8_t* At(int col, int pair) const {
    return b + col / kWidth * stripe + pair * stride + col % kWidth * kPairBytes;
  }
  void Fetch(int /*col*/, int /*cols*/, int /*pair*/) const {}
};

// A unit is eight columns.
struct KeyColumns {
  static constexpr int kWidth = kUnitKeys;
  const KvTile& keys;
  int64_t stride = kUnitKeys * kPairBytes;

  const uint8_t* At(int col, int pair) const {
    return static_cast<const uint8_t*>(keys.units[col / kWidth]) + pair * stride;
  }
  void Fetch(int col, int cols, int pair) const {
    if (pair != 0) return;
    const int64_t bytes = PaddedDim(keys.head_dim) / 2 * stride;
    for (int c = col; c < col + cols; c += kWidth) FetchAhead(keys.ahead[c / kWidth], bytes);
  }
};

// A unit is a group of depth.
struct ValueColumns {
  static constexpr int kWidth = kTileCols;
  const KvTile& values;
  int64_t stride = int64_t{PaddedDim(values.head_dim)} * kPairBytes;

  const uint8_t* At(int col, int pair) const {
    return static_cast<const uint8_t*>(values.units[pair / kUnitPairs]) + col * kPairBytes;
  }
  void Fetch(int col, int /*cols*/, int pair) const {
    if (col == 0) FetchAhead(values.ahead[pair / kUnitPairs], kUnitPairs * stride);
  }
};

// Sums of the block from `row` and `col` on, held in registers over the whole depth.
template <bool kTwoRows, bool kTwoCols, class Columns>
void MultiplyBlock(const TileProduct& product, const BlockShape& shape, int row, int col,
                   const Columns& columns) {
  const int64_t stride = product.a_stride * static_cast<int64_t>(sizeof(uint16_t));
  const auto* a = static_cast<const uint16_t*>(product.a) + row * product.a_stride;
  a += product.first_depth;
  const uint16_t* a1 = a + kTileRows * product.a_stride;
  const int64_t out_stride = product.out_stride * static_cast<int64_t>(sizeof(float));
  float* out = product.out + row * product.out_stride + product.first_col + col;
  float* out1 = out + kTileRows * product.out_stride;
  const int col1 = col + Columns::kWidth;
  if (product.rescale != nullptr) {
    _tile_loadd(0, out, out_stride);
    if constexpr (kTwoCols) _tile_loadd(1, out + Columns::kWidth, out_stride);
    if constexpr (kTwoRows) _tile_loadd(2, out1, out_stride);
    if constexpr (kTwoRows && kTwoCols) _tile_loadd(3, out1 + Columns::kWidth, out_stride);
  } else {
    _tile_zero(0);
    if constexpr (kTwoCols) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoCols) _tile_zero(3);
  }
  for (int depth = 0; depth < product.depth; depth += shape.group) {
    if (row == product.first_row) columns.Fetch(col, shape.cols[0] + shape.cols[1], depth / 2);
    _tile_loadd(4, a + depth, stride);
    _tile_loadd(6, columns.At(col, depth / 2), columns.stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoCols) {
      _tile_loadd(7, columns.At(col1, depth / 2), columns.stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, a1 + depth, stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kTwoRows && kTwoCols) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, out_stride);
  if constexpr (kTwoCols) _tile_stored(1, out + Columns::kWidth, out_stride);
  if constexpr (kTwoRows) _tile_stored(2, out1, out_stride);
  if constexpr (kTwoRows && kTwoCols) _tile_stored(3, out1 + Columns::kWidth, out_stride);
}

// What the rows of `out` hold, times their factors.
void Rescale(const TileProduct& product) {
  for (int r = product.first_row; r < product.first_row + product.rows; ++r) {
    if (product.rescale[r] == 1.0f) continue;
    float* out = product.out + r * product.out_stride + product.first_col;
    const __m512 factor = _mm512_set1_ps(product.rescale[r]);
    for (int col = 0; col < product.cols; col += 16) {
      const __mmask16 mask = product.cols - col >= 16 ? 0xFFFF : 0x00FF;
      const __m512 held = _mm512_maskz_loadu_ps(mask, out + col);
      _mm512_mask_storeu_ps(out + col, mask, _mm512_mul_ps(held, factor));
    }
  }
}

template <class Columns>
void MultiplyAll(const TileProduct& product, const Columns& columns) {
  const int group = GroupOf(product);
  if (product.rescale != nullptr) Rescale(product);
  Publish(product.out);
  BlockShape configured = {};
  const int end = product.first_row + product.rows;
  for (int row = product.first_row; row < end; row += 2 * kTileRows) {
    for (int col = 0; col < product.cols; col += 2 * Columns::kWidth) {
      const BlockShape shape = ShapeOf(end - row, product.cols - col, Columns::kWidth, group);
      if (shape != configured) Configure(configured = shape);
      const auto multiply = shape.rows[1] > 0
                                ? (shape.cols[1] > 0 ? MultiplyBlock<true, true, Columns>
                                                     : MultiplyBlock<true, false, Columns>)
                                : (shape.cols[1] > 0 ? MultiplyBlock<false, true, Columns>
                                                     : MultiplyBlock<false, false, Columns>);
      multiply(product, shape, row, col, columns);
    }
  }
  _tile_release();
}

void Multiply(const TileProduct& product) {
  const int64_t stripe = int64_t{product.b_depth} / 2 * kTileCols * kPairBytes;
  MultiplyAll(product, PackedColumns{static_cast<const uint8_t*>(product.b), stripe});
}

void MultiplyKeys(const KvTile& keys, const TileProduct& product) {
  if (product.rows <= kFewRows) return x86_avx512::MultiplyKeysInGroups(keys, product);
  MultiplyAll(product, KeyColumns{keys});
}

void MultiplyValues(const KvTile& values, const TileProduct& product) {
  if (product.rows <= kFewRows) return x86_avx512::MultiplyValuesInGroups(values, product);
  MultiplyAll(product, ValueColumns{values});
}

// `count`: a multiple of eight.
void Round(const float* from, int count, uint16_t* to) {
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i));
    std::memcpy(to + i, &rounded, sizeof(rounded));
  }
  if (i == count) return;
  const __m128bh rounded = _mm256_cvtneps_pbh(_mm256_loadu_ps(from + i));
  std::memcpy(to + i, &rounded, sizeof(rounded));
}

void PackQuery(const float* q, int head_dim, float scale, void* out) {
  constexpr int kRun = 32;
  alignas(64) float scaled[kRun];
  for (int first = 0; first < PaddedDim(head_dim); first += kRun) {
    const int count = std::min(kRun, PaddedDim(head_dim) - first);
    for (int i = 0; i < count; ++i) scaled[i] = first + i < head_dim ? q[first + i] * scale : 0;
    Round(scaled, count, static_cast<uint16_t*>(out) + first);
  }
}

// In float, in the scores' place, then rounded.
void Softmax(const TileSoftmax& tile) {
  TileSoftmax in_place = tile;
  in_place.probs = tile.scores;
  PortableAttentionKernels(DType::kF32).softmax(in_place);
  for (int r = 0; r < tile.rows; ++r) {
    if (tile.counts[r] == 0) continue;
    Round(tile.scores + r * kTileKeys, kTileKeys,
          static_cast<uint16_t*>(tile.probs) + r * kTileKeys);
  }
}

}  // namespace

AttentionKernels WithAmx(AttentionKernels kernels) {
  kernels.name = "amx";
  kernels.operand_size = sizeof(uint16_t);
  kernels.pack_query = PackQuery;
  kernels.multiply = Multiply;
  kernels.softmax = Softmax;
  kernels.multiply_keys = MultiplyKeys;
  kernels.multiply_values = MultiplyValues;
  return kernels;
}

}  // namespace talon::x86_amx
