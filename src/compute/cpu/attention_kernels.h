// The inner loops of attention on one tile of at most 128 keys, as a table of functions per cache
// type and instruction set.
//
// Both products of attention are one operation, out[rows, cols] = a[rows, depth] * b[depth, cols]:
// scores (a = queries, b = keys transposed, depth = dim, cols = keys) and the weighted sum of
// values (a = probabilities, b = values, depth = keys, cols = dim). `b` is packed once per tile,
// converted from the cache's type, and shared by all queries. Each element of `out` is one sum in
// ascending depth, whatever the number of rows or columns, so calls may be cut anywhere.
//
// `dim` is head_dim rounded up to 8; the padding is zero in every operand.
#ifndef TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_
#define TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "compute/cpu/attention_plan.h"
#include "compute/dtype.h"

namespace talon {

inline int PaddedDim(int head_dim) { return (head_dim + 7) / 8 * 8; }

inline constexpr int kMaxTileRows = 64;  // queries of one call

// K or V of one kv head for a run of keys, in the cache's type.
struct KvTile {
  const void* units[kTileUnits] = {};  // each [8, head_dim]
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

struct TileProduct {
  const void* a = nullptr;  // [rows, a_stride], the kernel's operand type
  int64_t a_stride = 0;
  const void* b = nullptr;  // packed
  int b_cols = 0;           // columns of the whole packed array: 128 for keys, dim for values
  int rows = 0;             // at most kMaxTileRows
  int depth = 0;            // multiple of 8
  int cols = 0;             // multiple of 8
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* rescale = nullptr;  // [rows] factors of what `out` holds, or null: starts at 0
};

// Softmax of a tile's scores, base 2, online: see AttentionKernels::softmax.
struct TileSoftmax {
  float* scores = nullptr;          // [rows, 128], overwritten
  void* probs = nullptr;            // [rows, 128], the kernel's operand type
  const int32_t* counts = nullptr;  // [rows] keys seen, 1..128; 0: the row is left alone
  int rows = 0;
  float* max = nullptr;      // [rows] running maximum
  float* sum = nullptr;      // [rows] running sum of weights
  float* rescale = nullptr;  // [rows] out: factor of earlier sums
};

struct AttentionKernels {
  const char* name;
  size_t operand_size;  // bytes of an element of `a`
  // out[0, dim) = q[0, head_dim) * scale, then zeros.
  void (*pack_query)(const float* q, int head_dim, float scale, void* out);
  void (*pack_keys)(const KvTile& tile, void* b);    // to [dim, 128]
  void (*pack_values)(const KvTile& tile, void* b);  // to [128, dim]
  void (*multiply)(const TileProduct& product);
  // For each row: new maximum m, weights 2^(score - m) of the keys seen and exact zeros after them,
  // sum = sum * rescale + their total.
  void (*softmax)(const TileSoftmax& tile);
};

// The fastest kernels of this machine for a cache of `dtype` (kF32, kF16, kBF16).
const AttentionKernels& GetAttentionKernels(DType dtype);
// The portable ones, which compute in float32 for every cache type.
const AttentionKernels& PortableAttentionKernels(DType dtype);
// Null where the build is for another architecture or the processor lacks the instructions.
const AttentionKernels* ArmBf16AttentionKernels();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_KERNELS_H_
