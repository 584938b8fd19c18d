// Best values of rows: argmax, and the k best log-probabilities.
//
// Values become 64-bit keys that order as the ops' contracts say (larger value first, then the
// lower index, NaN last), so that a maximum of keys in any order is the same answer. A warp finds
// the k best of a chunk of 1024; chunks of chunks follow until one is left.
#ifndef TALON_COMPUTE_CUDA_TOKENS_TOP_K_H_
#define TALON_COMPUTE_CUDA_TOKENS_TOP_K_H_

#include <cstddef>
#include <cstdint>

#include "compute/cuda/runtime/launch.h"
#include "compute/token_ops.h"

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

// The largest value of a chunk and the sum of exp(value - largest): what log-softmax needs.
struct ChunkSum {
  float largest;
  float sum;
};
// Rows whose chunks were ranked: what one warp can finish (top_k_row.cuh).
struct RankedChunks {
  const float* x = nullptr;
  int64_t stride = 0;
  const uint64_t* keys = nullptr;  // [rows][count]
  int count = 0;
  const ChunkSum* sums = nullptr;  // [rows][chunks]
  int chunks = 0;
};
RankedChunks RankChunks(const Stream& stream, MatrixView x, int k, void* scratch);

// out [x.rows * k], device memory. REQUIRES: k <= kTopKLimit.
void TopK(const Stream& stream, MatrixView x, int k, void* scratch, TopKEntry* out);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_TOP_K_H_
