// Address of a token's K or V vector of one head. Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_

#include <cstdint>

#include "compute/kv_view.h"

namespace talon::cuda {

// Index of the vector of `place`, a cache slot or ~(staging row), in the blocks or the staging.
__device__ __forceinline__ int64_t VectorIndex(const KvShape& shape, int place, int head) {
  if (place < 0) return static_cast<int64_t>(~place) * shape.kv_heads + head;
  const int block = place / shape.block_size;
  return (static_cast<int64_t>(block) * shape.kv_heads + head) * shape.block_size +
         place % shape.block_size;
}

// Returns that vector in `blocks` or `staged` of K or V.
template <typename T>
__device__ __forceinline__ T* VectorAt(const KvShape& shape, void* blocks, void* staged, int place,
                                       int head) {
  return static_cast<T*>(place < 0 ? staged : blocks) +
         VectorIndex(shape, place, head) * shape.head_dim;
}

// Returns the scale of that vector, if it is quantised.
__device__ __forceinline__ uint8_t* ScaleAt(const KvShape& shape, void* blocks, void* staged,
                                            int place, int head) {
  const int64_t vectors = place < 0 ? shape.StagedVectors() : shape.BlockVectors();
  return static_cast<uint8_t*>(place < 0 ? staged : blocks) + vectors * shape.head_dim +
         VectorIndex(shape, place, head);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_
