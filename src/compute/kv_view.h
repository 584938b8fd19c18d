// The shape of a KV cache and views of its device arrays.
#ifndef TALON_COMPUTE_KV_VIEW_H_
#define TALON_COMPUTE_KV_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/dtype.h"

namespace talon {

// Shape of a KV cache: K and V are each [num_blocks, kv_heads, block_size, head_dim] per layer, so
// one (block, head) is a contiguous tile; staging is [rows, kv_heads, head_dim] per layer.
struct KvShape {
  int num_layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 16;  // a power of two, 8..64
  DType dtype = DType::kF32;
  int num_blocks = 0;
  int staging_rows = 0;
  bool key_summaries = false;  // each full block carries its keys' summary

  size_t TileElements() const { return static_cast<size_t>(block_size) * head_dim; }
  size_t BlockBytes() const {  // one block of K or V in one layer
    return TileElements() * kv_heads * DTypeSize(dtype);
  }
  size_t RowBytes() const {  // one token of K or V in one layer
    return static_cast<size_t>(kv_heads) * head_dim * DTypeSize(dtype);
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
  void* key_max = nullptr;  // [num_blocks, kv_heads, head_dim]
  void* key_min = nullptr;
  float* key_norm = nullptr;  // [num_blocks, kv_heads]
};

struct KvView {
  KvShape shape;
  std::span<const KvLayer> layers;  // [num_layers]
};

// A hash that is equal for views of the same device arrays in the same shape: ops that were
// captured for one view may be replayed for another only if it agrees.
uint64_t IdentityOf(const KvView& kv);

}  // namespace talon

#endif  // TALON_COMPUTE_KV_VIEW_H_
