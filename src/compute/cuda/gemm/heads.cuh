// Epilogue of a QKV GEMM (gemm/heads.h). Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_
#define TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_

#include <cstdint>

#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/kv_place.cuh"
#include "compute/cuda/gemm/heads.h"

namespace talon::cuda {

template <typename T>
__device__ __forceinline__ void StoreFour(T* to, float4 x) {
  struct alignas(4 * sizeof(T)) Four {
    T x[4];
  };
  *reinterpret_cast<Four*>(to) = {FromFloat<T>(x.x), FromFloat<T>(x.y), FromFloat<T>(x.z),
                                  FromFloat<T>(x.w)};
}

__device__ __forceinline__ void StoreFourAs(DType dtype, const HeadsOut& heads, void* blocks,
                                            void* staged, int place, int head, int d, float4 x) {
  const auto store = [&]<typename T>(T) {
    StoreFour(VectorAt<T>(heads.shape, blocks, staged, place, head) + d, x);
  };
  switch (dtype) {
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

// Rotates and stores elements [d, d + 4) of a head's first half (`a`) and their partners in the
// second (`b`). `out` is the row of q, k and v.
__device__ __forceinline__ void StoreHeadPair(const HeadsOut& heads, int row, int head, int d,
                                              float4 a, float4 b, float* out) {
  const KvShape& shape = heads.shape;
  const int half = shape.head_dim / 2;
  const bool is_value = head >= heads.query_heads + shape.kv_heads;
  if (!is_value) {
    const float* angles = heads.angles + row * heads.angle_stride + d;
    const float4 cosine = *reinterpret_cast<const float4*>(angles);
    const float4 sine = *reinterpret_cast<const float4*>(angles + half);
    RotatePair(cosine.x, sine.x, &a.x, &b.x);
    RotatePair(cosine.y, sine.y, &a.y, &b.y);
    RotatePair(cosine.z, sine.z, &a.z, &b.z);
    RotatePair(cosine.w, sine.w, &a.w, &b.w);
  }
  if (head < heads.query_heads) {
    StoreFour(out + head * shape.head_dim + d, a);
    StoreFour(out + head * shape.head_dim + d + half, b);
    return;
  }
  const int kv_head = (head - heads.query_heads) % shape.kv_heads;
  void* blocks = is_value ? heads.layer.v_blocks : heads.layer.k_blocks;
  void* staged = is_value ? heads.layer.v_staged : heads.layer.k_staged;
  const int place = heads.places[row];
  StoreFourAs(shape.dtype, heads, blocks, staged, place, kv_head, d, a);
  StoreFourAs(shape.dtype, heads, blocks, staged, place, kv_head, d + half, b);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_HEADS_CUH_
