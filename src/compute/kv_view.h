// The shape of a KV cache and views of its device arrays.
#ifndef TALON_COMPUTE_KV_VIEW_H_
#define TALON_COMPUTE_KV_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "compute/dtype.h"

namespace talon {

constexpr bool IsQuantisedKv(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }
// What elements of this type are read as. bf16 represents every quantised value exactly.
constexpr DType KvValueType(DType dtype) { return IsQuantisedKv(dtype) ? DType::kBF16 : dtype; }

// Types of a KV cache by the names of settings: f32, f16, bf16, fp8 (or fp8_e4m3) and int8, in
// either case. False if unknown.
bool ParseKvType(std::string_view name, DType* dtype);

// How the tokens of a block lie: vector after vector, or in units of eight, in one of two orders
// (kv/kv_units.h). Staging rows are always vectors.
enum class KvLayout { kVectors, kUnitsOfFours, kUnitsOfPairs };

// Shape of a KV cache: K and V are each [num_blocks, kv_heads, block_size, head_dim] per layer, so
// one (block, head) is a contiguous tile; staging is [rows, kv_heads, head_dim] per layer.
//
// An array is thus a list of vectors of head_dim elements. If they are quantised (kv_codes.h), a
// byte of scale for each vector follows the last vector, in the same order.
struct KvShape {
  int num_layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 16;  // a power of two, 8..64
  DType dtype = DType::kF32;
  int num_blocks = 0;
  int staging_rows = 0;
  bool key_summaries = false;            // each full block carries its keys' summary
  KvLayout layout = KvLayout::kVectors;  // as the backend wants it (Backend::BlockLayout)

  bool quantised() const { return IsQuantisedKv(dtype); }
  bool in_units() const { return layout != KvLayout::kVectors; }
  DType value_type() const { return KvValueType(dtype); }

  constexpr int64_t BlockVectors() const { return int64_t{num_blocks} * kv_heads * block_size; }
  constexpr int64_t StagedVectors() const { return int64_t{staging_rows} * kv_heads; }
  size_t VectorBytes() const { return static_cast<size_t>(head_dim) * DTypeSize(dtype); }
  size_t ScaleBytes() const { return quantised() ? 1 : 0; }  // each vector's

  size_t TileElements() const { return static_cast<size_t>(block_size) * head_dim; }
  size_t BlockBytes() const {  // one block of K or V in one layer, with its scales
    return block_size * RowBytes();
  }
  size_t RowBytes() const {  // one token of K or V in one layer, with its scales
    return kv_heads * (VectorBytes() + ScaleBytes());
  }
  size_t SummaryBytes() const {  // key_max or key_min of one block in one layer
    return static_cast<size_t>(kv_heads) * head_dim * DTypeSize(value_type());
  }
  size_t NormBytes() const { return static_cast<size_t>(kv_heads) * sizeof(float); }
  size_t BytesPerToken() const { return 2 * RowBytes() * num_layers; }
};

// One layer's device arrays, not owned.
struct KvLayer {
  void* k_blocks = nullptr;  // [num_blocks, kv_heads, block_size, head_dim]
  void* v_blocks = nullptr;
  void* k_staged = nullptr;  // [staging_rows, kv_heads, head_dim]
  void* v_staged = nullptr;
  // Summaries of full blocks, null without KvShape::key_summaries: per kv head the element-wise
  // largest and smallest of the block's keys, and the mean of their L2 norms.
  void* key_max = nullptr;  // [num_blocks, kv_heads, head_dim] of value_type()
  void* key_min = nullptr;
  float* key_norm = nullptr;  // [num_blocks, kv_heads]
};

// One array of a layer as its vectors. Pointers to const are cast away: it is for copies too.
struct KvVectors {
  uint8_t* elements = nullptr;
  uint8_t* scales = nullptr;  // null unless they are quantised

  static KvVectors Of(const KvShape& shape, const void* array, int64_t vectors) {
    auto* bytes = static_cast<uint8_t*>(const_cast<void*>(array));
    return {bytes, shape.quantised() ? bytes + vectors * shape.VectorBytes() : nullptr};
  }
};
inline KvVectors BlockVectorsOf(const KvShape& shape, const void* blocks) {
  return KvVectors::Of(shape, blocks, shape.BlockVectors());
}
inline KvVectors StagedVectorsOf(const KvShape& shape, const void* staged) {
  return KvVectors::Of(shape, staged, shape.StagedVectors());
}

struct KvView {
  KvShape shape;
  std::span<const KvLayer> layers;  // [num_layers]
};

// A hash that is equal for views of the same device arrays in the same shape: ops that were
// captured for one view may be replayed for another only if it agrees.
uint64_t IdentityOf(const KvView& kv);

}  // namespace talon

#endif  // TALON_COMPUTE_KV_VIEW_H_
