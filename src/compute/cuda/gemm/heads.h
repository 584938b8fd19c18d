// Parameters of the fused QKV epilogue: it rotates the heads of q and k, writes q to the output and
// K and V to the cache (Backend::ProjectQkv).
#ifndef TALON_COMPUTE_CUDA_GEMM_HEADS_H_
#define TALON_COMPUTE_CUDA_GEMM_HEADS_H_

#include <cstdint>

#include "compute/host_device.h"
#include "compute/kv_view.h"

namespace talon::cuda {

struct HeadsOut {
  const int32_t* places = nullptr;  // [rows] (DevicePlan), or null: a plain GEMM
  const float* angles = nullptr;    // [rows, angle_stride] cos then sin, head_dim / 2 of each
  int64_t angle_stride = 0;
  int query_heads = 0;
  KvShape shape;
  KvLayer layer;
};

// A thread stores four elements of a head's first half and the four that they rotate with. Returns
// the output of the tile at which pair `pair` starts; its partner is half a head further on.
TALON_HOST_DEVICE constexpr int OutputOfPair(int pair, int head_dim) {
  const int head_pairs = head_dim / 8;
  return pair / head_pairs * head_dim + pair % head_pairs * 4;
}

// Whether a tile of `tile_outputs` outputs consists of whole heads, rotated entirely, in whole
// pairs.
constexpr bool HoldsHeads(int tile_outputs, int head_dim, int rotated) {
  return head_dim == rotated && head_dim % 8 == 0 && tile_outputs % head_dim == 0;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_HEADS_H_
