// Epilogue of a QKV GEMM (gemm/heads.h). Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_
#define TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_

#include <cstdint>

#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/kv_place.cuh"
#include "compute/cuda/gemm/heads.h"

namespace talon::cuda {

// kCount consecutive elements of a head.
template <int kCount>
struct Elements {
  float x[kCount];
};

template <typename T, int kCount>
__device__ __forceinline__ void StoreElements(T* to, const Elements<kCount>& from) {
  struct alignas(kCount * sizeof(T)) Values {
    T x[kCount];
  } values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.x[i] = FromFloat<T>(from.x[i]);
  *reinterpret_cast<Values*>(to) = values;
}

template <int kCount>
__device__ __forceinline__ void StoreToCache(const HeadsOut& heads, void* blocks, void* staged,
                                             int place, int head, int d,
                                             const Elements<kCount>& x) {
  const auto store = [&]<typename T>(T) {
    StoreElements(VectorAt<T>(heads.shape, blocks, staged, place, head) + d, x);
  };
  switch (heads.shape.dtype) {
    case DType::kBF16:
      return store(__nv_bfloat16{});
    case DType::kF16:
      return store(__half{});
    default:
      return store(float{});
  }
}

// The same arithmetic as TransformHead's (kv_ops.cu).
__device__ __forceinline__ void RotatePair(float cosine, float sine, float* a, float* b) {
  const float low = __fmaf_rn(*a, cosine, -__fmul_rn(*b, sine));
  *b = __fmaf_rn(*b, cosine, __fmul_rn(*a, sine));
  *a = low;
}

// Rotates and stores elements from `d` on of a head's first half (`a`) and their partners in the
// second (`b`). `out` is the row of q, k and v.
template <int kCount>
__device__ __forceinline__ void StoreHeadPair(const HeadsOut& heads, int row, int head, int d,
                                              Elements<kCount> a, Elements<kCount> b, float* out) {
  const KvShape& shape = heads.shape;
  const int half = shape.head_dim / 2;
  const bool is_value = head >= heads.query_heads + shape.kv_heads;
  if (!is_value) {
    const float* angles = heads.angles + row * heads.angle_stride + d;
#pragma unroll
    for (int i = 0; i < kCount; ++i) RotatePair(angles[i], angles[half + i], &a.x[i], &b.x[i]);
  }
  if (head < heads.query_heads) {
    StoreElements(out + head * shape.head_dim + d, a);
    StoreElements(out + head * shape.head_dim + d + half, b);
    return;
  }
  const int kv_head = (head - heads.query_heads) % shape.kv_heads;
  void* blocks = is_value ? heads.layer.v_blocks : heads.layer.k_blocks;
  void* staged = is_value ? heads.layer.v_staged : heads.layer.k_staged;
  const int place = heads.places[row];
  StoreToCache(heads, blocks, staged, place, kv_head, d, a);
  StoreToCache(heads, blocks, staged, place, kv_head, d + half, b);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_
