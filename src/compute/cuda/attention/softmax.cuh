// The arithmetic of the online softmax that all attention kernels share, so that a row has the same
// bits in each of them. Written with intrinsics, because the compiler may contract the same
// expression differently in different kernels.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_SOFTMAX_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_SOFTMAX_CUH_

#include "compute/cuda/device/mma.cuh"

namespace talon::cuda {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
inline constexpr float kLog2E = 1.4426950408889634f;

// Lazy rescaling: how far (in log2) scores may exceed the running maximum before it moves. Weights
// stay below 2^8, and most tiles do not rescale the accumulators.
inline constexpr float kScoreSlack = 8;

// The running maximum after a tile whose largest score is `largest`.
__device__ __forceinline__ float NextMaximum(float maximum, float largest) {
  return largest > __fadd_rn(maximum, kScoreSlack) ? largest : maximum;
}
// What weights are relative to.
__device__ __forceinline__ float WeightBase(float maximum) {
  return maximum == kMinusInfinity ? 0.0f : maximum;
}

// 1 / (the sum of weights, with that of the head's sink where there is one); 0 without any weight.
__device__ __forceinline__ float InverseTotal(const float* sinks, int head, float m, float l) {
  if (sinks != nullptr) {
    l = __fadd_rn(l, Exp2(__fsub_rn(__fmul_rn(sinks[head], kLog2E), WeightBase(m))));
  }
  return l == 0 ? 0.0f : __fdiv_rn(1.0f, l);
}

// Rescaling factors of two states that are merged.
struct MergeFactors {
  float m, a, b;
  __device__ __forceinline__ MergeFactors(float m_a, float m_b) : m(fmaxf(m_a, m_b)) {
    a = Exp2(__fsub_rn(m_a, WeightBase(m)));
    b = Exp2(__fsub_rn(m_b, WeightBase(m)));
  }
  __device__ __forceinline__ float Merge(float x_a, float x_b) const {
    return __fmaf_rn(x_b, b, __fmul_rn(x_a, a));
  }
};

// The totals of a partial while its chunks are merged: maximum and sum of weights of one query.
struct PartialTotals {
  float m = kMinusInfinity;
  float l = 0;

  // Merges a chunk's totals, or takes them if it is the first. Returns the factors for its
  // accumulators.
  __device__ __forceinline__ MergeFactors Add(float chunk_m, float chunk_l, bool first) {
    const MergeFactors factors(m, chunk_m);
    m = first ? chunk_m : factors.m;
    l = first ? chunk_l : factors.Merge(l, chunk_l);
    return factors;
  }
};

// Merges two columns of a chunk into a partial in memory, or stores the first chunk's. Each thread
// reads back only what it wrote itself.
__device__ __forceinline__ void MergeColumns(float* to, float2 chunk, bool first,
                                             const MergeFactors& factors) {
  auto* target = reinterpret_cast<float2*>(to);
  if (!first) {
    const float2 before = *target;
    chunk = {factors.Merge(before.x, chunk.x), factors.Merge(before.y, chunk.y)};
  }
  *target = chunk;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_SOFTMAX_CUH_
