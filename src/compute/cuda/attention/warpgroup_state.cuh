// The online softmax of WarpgroupKernel (attention/warpgroup.cuh): the arithmetic of
// attention/tile.cuh in the registers of a warpgroup.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_

#include "compute/cuda/attention/args.cuh"
#include "compute/cuda/attention/softmax.cuh"
#include "compute/cuda/attention/warpgroup_layout.h"

namespace talon::cuda {

inline constexpr int kStepScores = kStepKeys / 2;  // per thread, in two rows of its warp's 16
inline constexpr int kTileScores = kTileKeys / 2;

// The factors by which a tile's new maximum rescales a thread's two rows.
struct Rescaling {
  float factor[2];
  bool moves;  // uniform in a warp
};

// The online softmax of 64 queries in a warpgroup's registers; rows g (0) and g + 8 (1) of each
// warp's 16 queries.
struct ChunkTotals {
  float m[2];  // running maximum
  float l[2];  // sum of weights

  __device__ __forceinline__ void Clear() {
    m[0] = m[1] = kMinusInfinity;
    l[0] = l[1] = 0;
  }
};
template <typename C>
struct GroupState {
  ChunkTotals totals;
  float acc[C::kDim / 2];

  // Turns the scores of tile `Tile` of a step into weights.
  template <int Tile>
  __device__ __forceinline__ Rescaling OnlineSoftmax(float (&s)[kStepScores]) {
    Rescaling rescaling;
    float(&m)[2] = totals.m;
    const float next[2] = {NextMaximum(m[0], Largest<Tile, 0>(s)),
                           NextMaximum(m[1], Largest<Tile, 1>(s))};
    rescaling.moves = __any_sync(0xffffffffu, next[0] != m[0] || next[1] != m[1]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rescaling.factor[half] = Exp2(__fsub_rn(m[half], WeightBase(next[half])));
      m[half] = next[half];
    }
    ToWeights<Tile, 0>(s, rescaling.factor[0]);
    ToWeights<Tile, 1>(s, rescaling.factor[1]);
    return rescaling;
  }
  __device__ __forceinline__ void Rescale(const Rescaling& rescaling) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) acc[i] = __fmul_rn(acc[i], rescaling.factor[i / 2 % 2]);
  }

 private:
  template <int Tile, int Half>
  __device__ __forceinline__ static float Largest(const float (&s)[kStepScores]) {
    constexpr int kFirst = Tile * kTileScores + 2 * Half;
    float a = s[kFirst], b = s[kFirst + 1];
#pragma unroll
    for (int j = 4; j < kTileScores; j += 4) {
      a = fmaxf(a, s[kFirst + j]);
      b = fmaxf(b, s[kFirst + j + 1]);
    }
    a = fmaxf(a, b);
    a = fmaxf(a, ShuffleXor(a, 1));
    return fmaxf(a, ShuffleXor(a, 2));
  }
  template <int Tile, int Half>
  __device__ __forceinline__ void ToWeights(float (&s)[kStepScores], float rescale) {
    constexpr int kFirst = Tile * kTileScores + 2 * Half;
    const float base = WeightBase(totals.m[Half]);
    float sum = 0;
#pragma unroll
    for (int j = kFirst; j < (Tile + 1) * kTileScores; j += 4) {
      s[j] = Exp2(__fsub_rn(s[j], base));
      s[j + 1] = Exp2(__fsub_rn(s[j + 1], base));
      sum = __fadd_rn(sum, __fadd_rn(s[j], s[j + 1]));
    }
    sum = __fadd_rn(sum, ShuffleXor(sum, 1));
    sum = __fadd_rn(sum, ShuffleXor(sum, 2));
    totals.l[Half] = __fmaf_rn(totals.l[Half], rescale, sum);
  }
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_
