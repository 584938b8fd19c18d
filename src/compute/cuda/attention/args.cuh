// Arguments of the attention kernels, and how the kernels store their results.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_ARGS_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_ARGS_CUH_

#include <cstdint>

#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/mma.cuh"
#include "compute/cuda/runtime/attention_work.h"
#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/rows_out.h"

namespace talon::cuda {

// AttentionCall as kernel arguments.
struct AttentionArgs {
  DevicePlan plan;
  const float* q;
  int64_t q_stride;
  RowsOut out;
  const void* k_blocks;
  const void* v_blocks;
  const void* k_staged;
  const void* v_staged;
  int64_t block_vectors;   // vectors of head_dim elements in each of k_blocks and v_blocks
  int64_t staged_vectors;  // and in the staging
  int layer;
  int kv_heads;
  int group;
  int head_dim;
  int block_shift;     // log2 of the block size
  int tail_heads;      // query heads per block of the tail and the window kernel
  float scale_log2;    // scores are in base 2
  int window;          // AttentionInput
  const float* sinks;  // AttentionInput
  float* states;       // kStateHeader + head_dim floats each
  uint32_t* counter;   // items that PrefixKernel has taken

  __device__ int heads() const { return kv_heads * group; }
  // 128 bytes of zeros: the end of the scratch's header.
  __device__ const uint8_t* zeros() const {
    return reinterpret_cast<const uint8_t*>(counter) + kScratchHeaderBytes - 128;
  }
  __device__ float* State(int index) const {
    return states + static_cast<int64_t>(index) * (kStateHeader + head_dim);
  }
  // Location of K and V of a slot or ~(staging row): the index of a vector of head_dim elements in
  // the blocks, or ~(index in the staging).
  __device__ int VectorOf(int place, int kv_head) const {
    if (place < 0) return ~(~place * kv_heads + kv_head);
    const int block = place >> block_shift;
    return (((block * kv_heads) + kv_head) << block_shift) + (place & ((1 << block_shift) - 1));
  }
  __device__ int VectorOfKey(const int32_t* blocks, int key, int kv_head) const {
    const int within = key & ((1 << block_shift) - 1);
    return VectorOf((blocks[key >> block_shift] << block_shift) + within, kv_head);
  }
};

template <typename T, int Width>
__device__ __forceinline__ void StoreResultAs(void* data, int64_t at, const float (&x)[Width]) {
  struct alignas(Width * sizeof(T)) Values {
    T x[Width];
  } values;
#pragma unroll
  for (int i = 0; i < Width; ++i) values.x[i] = FromFloat<T>(x[i]);
  *reinterpret_cast<Values*>(static_cast<T*>(data) + at) = values;
}

// Stores neighbouring results of a row. `at` is a multiple of their number.
template <int Width>
__device__ __forceinline__ void StoreResultAt(const RowsOut& out, int64_t at,
                                              const float (&x)[Width]) {
  switch (out.dtype) {
    case DType::kBF16:
      return StoreResultAs<__nv_bfloat16>(out.data, at, x);
    case DType::kF16:
      return StoreResultAs<__half>(out.data, at, x);
    default:
      return StoreResultAs<float>(out.data, at, x);
  }
}

template <int Width>
__device__ __forceinline__ void StoreResult(const RowsOut& out, int row, int column,
                                            const float (&x)[Width]) {
  StoreResultAt(out, row * out.stride + column, x);
}

// Stores zeros in the columns after a row's results, by the threads that have its last head.
__device__ __forceinline__ void StorePadding(const RowsOut& out, int row, int thread, int threads) {
  for (int i = out.cols + thread; i < out.padded_cols; i += threads) {
    StoreResult<1>(out, row, i, {0.0f});
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_ARGS_CUH_
