// Address of a token's K or V vector of one head. Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_
#define TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_

#include <cstdint>

#include "compute/kv_view.h"

namespace talon::cuda {

// Returns the vector of `place`, a cache slot or ~(staging row), in `blocks` or `staged` of K or V.
template <typename T>
__device__ __forceinline__ T* VectorAt(const KvShape& shape, void* blocks, void* staged, int place,
                                       int head) {
  if (place < 0) {
    const int64_t vector = static_cast<int64_t>(~place) * shape.kv_heads + head;
    return static_cast<T*>(staged) + vector * shape.head_dim;
  }
  const int block = place / shape.block_size;
  const int64_t vector = (static_cast<int64_t>(block) * shape.kv_heads + head) * shape.block_size +
                         place % shape.block_size;
  return static_cast<T*>(blocks) + vector * shape.head_dim;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_DEVICE_KV_PLACE_CUH_
