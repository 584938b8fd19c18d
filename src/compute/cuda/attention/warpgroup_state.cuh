// The online softmax of WarpgroupKernel (attention/warpgroup.cuh).
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_

#include "compute/cuda/attention/args.cuh"
#include "compute/cuda/attention/boxes.cuh"
#include "compute/cuda/attention/warpgroup_layout.h"

namespace talon::cuda {

inline constexpr int kStepScores = kStepKeys / 2;  // per thread, in two rows of its warp's 16

// The online softmax of 64 queries in a warpgroup's registers; rows g (0) and g + 8 (1) of each
// warp's 16 queries.
template <typename C>
struct GroupState {
  float m[2];  // the maximum that weights are relative to
  float l[2];  // sum over the thread's own columns
  float acc[C::kDim / 2];

  __device__ __forceinline__ void Clear() {
    m[0] = m[1] = kMinusInfinity;
    l[0] = l[1] = 0;
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) acc[i] = 0;
  }

  // Turns scores into weights. Returns whether the accumulators must be multiplied by `rescale`,
  // which is uniform in a warp.
  __device__ __forceinline__ bool OnlineSoftmax(float (&s)[kStepScores], float (&rescale)[2]) {
    const float largest[2] = {Largest<0>(s), Largest<1>(s)};
    const bool rises = largest[0] > m[0] + kScoreSlack || largest[1] > m[1] + kScoreSlack;
    const bool moves = __any_sync(0xffffffffu, rises);
    if (moves) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = m[half];
        m[half] = fmaxf(before, largest[half]);
        rescale[half] = Exp2(before - Base(half));
        l[half] *= rescale[half];
      }
    }
    ToWeights<0>(s);
    ToWeights<1>(s);
    return moves;
  }
  __device__ __forceinline__ void Rescale(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) acc[i] *= rescale[i / 2 % 2];
  }

 private:
  __device__ __forceinline__ float Base(int half) const {
    return m[half] == kMinusInfinity ? 0.0f : m[half];
  }
  template <int Half>
  __device__ __forceinline__ static float Largest(const float (&s)[kStepScores]) {
    float a = s[2 * Half], b = s[2 * Half + 1];
#pragma unroll
    for (int j = 4 + 2 * Half; j < kStepScores; j += 4) {
      a = fmaxf(a, s[j]);
      b = fmaxf(b, s[j + 1]);
    }
    a = fmaxf(a, b);
    a = fmaxf(a, ShuffleXor(a, 1));
    return fmaxf(a, ShuffleXor(a, 2));
  }
  template <int Half>
  __device__ __forceinline__ void ToWeights(float (&s)[kStepScores]) {
    const float base = Base(Half);
    float a = 0, b = 0;
#pragma unroll
    for (int j = 2 * Half; j < kStepScores; j += 4) {
      s[j] = Exp2(s[j] - base);
      s[j + 1] = Exp2(s[j + 1] - base);
      a += s[j];
      b += s[j + 1];
    }
    l[Half] += a + b;
  }
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_STATE_CUH_
