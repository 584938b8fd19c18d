// Best values of rows: argmax, and the k best log-probabilities.
//
// Values become 64-bit keys that order as the ops' contracts say (larger value first, then the
// lower index, NaN last), so that a maximum of keys in any order is the same answer. A warp finds
// the k best of a chunk of 1024; chunks of chunks follow until one is left.
#ifndef TALON_COMPUTE_CUDA_TOP_K_H_
#define TALON_COMPUTE_CUDA_TOP_K_H_

#include <cstddef>
#include <cstdint>

#include "compute/backend.h"
#include "compute/cuda/launch.h"

namespace talon::cuda {

inline constexpr int kTopKLimit = 512;
inline constexpr int kArgmaxParts = 8;  // a row is read by this many blocks

// The index that a key stands for.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline int32_t
    IndexOfKey(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

#ifdef __CUDACC__
// Ascending with the value; NaN, of either sign, below everything.
__device__ __forceinline__ uint32_t OrderedBits(float value) {
  const uint32_t bits = __float_as_uint(value);
  return isnan(value) ? 0 : (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ uint64_t OrderedKey(float value, int index) {
  return static_cast<uint64_t>(OrderedBits(value)) << 32 |
         (0xffffffffu - static_cast<uint32_t>(index));
}

__device__ __forceinline__ uint64_t WarpMaxKey(uint64_t key) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, offset);
    key = other > key ? other : key;
  }
  return key;
}
#endif  // __CUDACC__

// keys [x.rows, kArgmaxParts], device memory: the largest of each part, 0 for an empty part.
void ArgmaxKeys(const Stream& stream, MatrixView x, uint64_t* keys);

size_t TopKScratchBytes(int rows, int cols, int k);
// out [rows][k], device memory, its rows `out_rows` [x.rows] or, if that is null, the first.
// REQUIRES: k <= kTopKLimit.
void TopK(const Stream& stream, MatrixView x, int k, void* scratch, TopKEntry* out,
          const int32_t* out_rows = nullptr);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOP_K_H_
