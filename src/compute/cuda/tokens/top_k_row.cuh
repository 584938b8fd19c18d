// The k best of a row by one warp, of what its chunks left (top_k.h).
#ifndef TALON_COMPUTE_CUDA_TOKENS_TOP_K_ROW_CUH_
#define TALON_COMPUTE_CUDA_TOKENS_TOP_K_ROW_CUH_

#include <cmath>

#include "compute/cuda/tokens/top_k.h"

namespace talon::cuda {

inline constexpr int kLaneValues = 32;
inline constexpr int kChunk = 32 * kLaneValues;

// Writes the k largest of the warp's keys, largest first; 0 where there are fewer.
__device__ __forceinline__ void SelectBest(uint64_t (&keys)[kLaneValues], int k, uint64_t* out) {
  for (int n = 0; n < k; ++n) {
    uint64_t mine = 0;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) mine = keys[i] > mine ? keys[i] : mine;
    const uint64_t best = WarpMaxKey(mine);
    if (threadIdx.x % 32 == 0) out[n] = best;
    if (mine != best) continue;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) {
      if (keys[i] == best) keys[i] = 0;
    }
  }
}

// log of the row's sum of exponentials, after its largest value: both from the chunks, in order.
struct Normaliser {
  float largest = -INFINITY;
  float log_sum = 0;

  __device__ Normaliser(const ChunkSum* sums, int chunks) {
    for (int i = 0; i < chunks; ++i) largest = fmaxf(largest, sums[i].largest);
    float sum = 0;
    for (int i = 0; i < chunks; ++i) {
      if (sums[i].sum != 0) sum += sums[i].sum * expf(sums[i].largest - largest);
    }
    log_sum = logf(sum);
  }
};

// `best` [k] is the warp's own shared memory.
__device__ __forceinline__ void RankRow(const RankedChunks& ranked, int row, int k, uint64_t* best,
                                        TopKEntry* out) {
  const int lane = threadIdx.x % 32;
  const uint64_t* keys_in = ranked.keys + static_cast<int64_t>(row) * ranked.count;
  uint64_t keys[kLaneValues];
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int at = 32 * i + lane;
    keys[i] = at < ranked.count ? keys_in[at] : 0;
  }
  SelectBest(keys, k, best);
  const Normaliser normaliser(ranked.sums + static_cast<int64_t>(row) * ranked.chunks,
                              ranked.chunks);
  __syncwarp();
  for (int i = lane; i < k; i += 32) {
    const int32_t id = IndexOfKey(best[i]);
    const float log_prob =
        ranked.x[row * ranked.stride + id] - normaliser.largest - normaliser.log_sum;
    out[i] = {id, isnan(normaliser.log_sum) ? normaliser.log_sum : log_prob};
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_TOP_K_ROW_CUH_
