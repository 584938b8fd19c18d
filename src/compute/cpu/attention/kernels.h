// The inner loops of attention on one tile of at most 128 keys, as a table of functions per cache
// type and instruction set.
//
// Both products of attention are one operation, out[rows, cols] = a[rows, depth] * b[depth, cols]:
// scores (a = queries, b = keys transposed, depth = dim, cols = keys) and the weighted sum of
// values (a = probabilities, b = values, depth = keys, cols = dim). `b` is packed once per tile,
// converted from the cache's type, and shared by all queries; or, where queries are few and the
// cache lies in the order of the kernel, read as it lies. Each element of `out` is one sum in a
// fixed order, whatever the number of rows or columns, so calls may be cut at any row or unit of
// columns; the sums of values also at any unit of depth.
//
// Arrays by row ([rows, stride]) are row-major or, where a kernel's matrix instructions want it, in
// pairs of rows that alternate (AttentionKernels::row_pairs).
//
// `dim` is head_dim rounded up to 8; the padding is zero in every operand.
#ifndef TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_
#define TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "compute/cpu/attention/plan.h"
#include "compute/dtype.h"
#include "compute/kv/kv_units.h"

namespace talon {

inline constexpr float kLog2E = 1.44269504f;  // scores are kept in base 2

inline int PaddedDim(int head_dim) { return RoundUp(head_dim, 8); }

inline constexpr int kMaxTileRows = 128;  // queries that share a packed tile, even

// K or V of one kv head for a run of keys, in the cache's type.
struct KvTile {
  const void* units[kTileUnits] = {};  // each [8, head_dim], or in the kernel's order
  const void* ahead[kTileUnits] = {};  // a unit of a later tile to fetch meanwhile, or null
  int num_units = 0;
  int head_dim = 0;
};

// Asks for `bytes` at `data` to be brought to the second-level cache. Kernels do so unit by unit,
// because a processor drops requests that come in long bursts.
inline void FetchAhead(const void* data, int64_t bytes) {
  constexpr int kLine = 64;
  if (data == nullptr) return;
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(static_cast<const uint8_t*>(data) + i, 0, 2);
  }
}

// Rows [first_row, first_row + rows) of both arrays, `a` from first_depth on, `out` from first_col
// on, `b` from its start on.
struct TileProduct {
  const void* a = nullptr;  // [.., a_stride], the kernel's operand type
  int64_t a_stride = 0;
  int first_depth = 0;      // multiple of 8
  const void* b = nullptr;  // packed
  int b_depth = 0;          // depth of the whole packed array: dim for keys, 128 for values
  int b_cols = 0;           // columns of the whole packed array: 128 for keys, dim for values
  int first_row = 0;
  int rows = 0;
  int depth = 0;  // multiple of 8
  int cols = 0;   // multiple of 8
  float* out = nullptr;
  int64_t out_stride = 0;
  int first_col = 0;  // multiple of 8
  // Factors of what the rows of `out` hold, to which is added, so that the depth may be cut. Null:
  // starts at 0 and has the whole depth.
  const float* rescale = nullptr;
};

// Softmax of a tile's scores, base 2, online: see AttentionKernels::softmax. With row_pairs the
// last pair is whole: a row more than wanted sees no key.
struct TileSoftmax {
  float* scores = nullptr;  // [rows, 128], overwritten
  void* probs = nullptr;    // [rows, 128], the kernel's operand type
  // [rows] keys [first, count) are seen, count 1..128; 0: the row is left alone.
  const int32_t* firsts = nullptr;
  const int32_t* counts = nullptr;
  int rows = 0;
  float* max = nullptr;      // [rows] running maximum
  float* sum = nullptr;      // [rows] running sum of weights
  float* rescale = nullptr;  // [rows] out: factor of earlier sums
};

struct AttentionKernels {
  const char* name;
  size_t operand_size;  // bytes of an element of `a`
  // Rows 2i and 2i + 1 lie together and alternate: 4 elements each of operands, 2 each of sums.
  bool row_pairs;
  // out[0, dim) = q[0, head_dim) * scale, then zeros; `out` is where the row starts (OperandRow).
  void (*pack_query)(const float* q, int head_dim, float scale, void* out);
  void (*pack_keys)(const KvTile& tile, void* b);    // to [dim, 128]
  void (*pack_values)(const KvTile& tile, void* b);  // to [128, dim]
  void (*multiply)(const TileProduct& product);
  // For each row: new maximum m, weights 2^(score - m) of the keys seen and exact zeros elsewhere,
  // sum = sum * rescale + their total.
  void (*softmax)(const TileSoftmax& tile);

  // Kernels that read ordered units (kv_units.h), in tiles to pack too. `order`: of eight vectors
  // [8, head_dim] makes a unit of `dim` elements each.
  KvLayout unit_layout = KvLayout::kVectors;
  void (*order_keys)(const void* vectors, int head_dim, void* unit) = nullptr;
  void (*order_values)(const void* vectors, int head_dim, void* unit) = nullptr;
  // A unit of quantised codes, as bf16 in the same order.
  void (*expand)(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales,
                 int head_dim, uint16_t* out) = nullptr;
  // Products straight from a tile of units, faster up to this many rows: the same bits as packing
  // and `multiply`; `b` is not used.
  int direct_rows = 0;
  void (*multiply_keys)(const KvTile& keys, const TileProduct& product) = nullptr;
  void (*multiply_values)(const KvTile& values, const TileProduct& product) = nullptr;

  bool reads_units() const { return unit_layout != KvLayout::kVectors; }

  // First element of a row in an array of operands.
  void* OperandRow(void* array, int row, int64_t stride) const {
    const int64_t first = row_pairs ? row / 2 * 2 * stride + row % 2 * 4 : row * stride;
    return static_cast<uint8_t*>(array) + first * static_cast<int64_t>(operand_size);
  }
  // Copies a row of sums, of an even number of columns.
  void ReadSums(const float* array, int row, int cols, float* out) const {
    if (!row_pairs) {
      std::copy_n(array + int64_t{row} * cols, cols, out);
      return;
    }
    const float* from = array + int64_t{row / 2 * 2} * cols + row % 2 * 2;
    for (int i = 0; i < cols; i += 2) {
      out[i] = from[2 * i];
      out[i + 1] = from[2 * i + 1];
    }
  }
};

// The fastest kernels of this machine for a cache of `dtype` (kF32, kF16, kBF16).
const AttentionKernels& GetAttentionKernels(DType dtype);
// The portable ones, which compute in float32 for every cache type.
const AttentionKernels& PortableAttentionKernels(DType dtype);
// Those written for the architecture that this processor can run, for a bf16 cache: best first,
// ended by a null.
const AttentionKernels* const* NativeAttentionKernels();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_
