#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/device/kv_codes.cuh"
#include "compute/cuda/device/kv_place.cuh"
#include "compute/cuda/kv/kv_ops.h"

namespace talon::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// The work of a warp: one head of one row.
struct HeadWork {
  float* x = nullptr;
  const float* norm = nullptr;    // [head_dim], or null
  const float* angles = nullptr;  // cos [half], sin [half], or null
  int half = 0;
  int head_dim = 0;
  float epsilon = 0;

  __device__ float Factor() const {
    if (norm == nullptr) return 1;
    float squares = 0;
    for (int d = threadIdx.x % 32; d < head_dim; d += 32) {
      squares = __fmaf_rn(x[d], x[d], squares);
    }
    return rsqrtf(__fadd_rn(__fdiv_rn(WarpSum(squares), static_cast<float>(head_dim)), epsilon));
  }
  __device__ float Normed(int d, float factor) const {
    return norm == nullptr ? x[d] : __fmul_rn(__fmul_rn(x[d], factor), norm[d]);
  }
};

// Calls store(d, value) for each element of the head after its norm and rotation. Everything is
// loaded before the first value is stored.
template <typename Store>
__device__ void TransformHead(const HeadWork& work, const Store& store) {
  constexpr int kBatch = 4;
  const int lane = threadIdx.x % 32;
  const float factor = work.Factor();
  const int rotated = work.angles == nullptr ? 0 : work.half;
  for (int first = lane; first < rotated; first += 32 * kBatch) {
    float cosine[kBatch], sine[kBatch], a[kBatch], b[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int d = first + 32 * i;
      if (d >= rotated) continue;
      cosine[i] = work.angles[d];
      sine[i] = work.angles[rotated + d];
      a[i] = work.Normed(d, factor);
      b[i] = work.Normed(rotated + d, factor);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int d = first + 32 * i;
      if (d >= rotated) continue;
      store(d, __fmaf_rn(a[i], cosine[i], -__fmul_rn(b[i], sine[i])));
      store(rotated + d, __fmaf_rn(b[i], cosine[i], __fmul_rn(a[i], sine[i])));
    }
  }
  for (int d = 2 * rotated + lane; d < work.head_dim; d += 32) store(d, work.Normed(d, factor));
}

// Rounds a head's vector into the cache.
template <typename T>
__device__ void StoreVector(const float* x, int head_dim, T* cache) {
  constexpr int kBatch = 4;
  for (int first = threadIdx.x % 32; first < head_dim; first += 32 * kBatch) {
    float values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + 32 * i < head_dim) values[i] = x[first + 32 * i];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + 32 * i < head_dim) cache[first + 32 * i] = FromFloat<T>(values[i]);
    }
  }
}

// Quantises a head's vector into the cache.
template <typename T>
__device__ void StoreCodes(const float* x, int head_dim, T* cache, uint8_t* scale) {
  const int lane = threadIdx.x % 32;
  uint32_t largest = 0;
  for (int d = lane; d < head_dim; d += 32) {
    largest = max(largest, __float_as_uint(x[d]) & 0x7FFFFFFFu);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  const uint8_t own = KvScaleOf(T::kType, largest);
  if (lane == 0) *scale = own;
  if (own == kNanKvScale) {
    for (int d = lane; d < head_dim; d += 32) cache[d].bits = 0;
    return;
  }
  const float factor = InverseKvScale(own);
  for (int d = lane; d < head_dim; d += 32) {
    const float scaled = __fmul_rn(x[d], factor);
    cache[d].bits = T::kType == DType::kI8 ? Int8KvCode(scaled) : Fp8KvCode(scaled);
  }
}

// The transform in place, a warp for each head of each row.
__global__ void HeadsKernel(MatrixView x, HeadWork work, MatrixView angles) {
  PdlTrigger();
  PdlWait();
  const int heads = x.cols / work.head_dim;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  if (head >= heads) return;
  work.x = x.data + blockIdx.x * x.stride + head * work.head_dim;
  if (angles.data != nullptr) work.angles = angles.data + blockIdx.x * angles.stride;
  TransformHead(work, [&](int d, float value) { work.x[d] = value; });
}

struct StoreArgs {
  const int32_t* places;
  QkvRows rows;       // q without data: K and V only
  MatrixView angles;  // without data: no rotation
  KvShape shape;
  KvLayer layer;
};

// A warp for each head of q, then of k, then of v, of each row. The places come from a copy.
template <typename T>
__global__ void StoreKernel(const __grid_constant__ StoreArgs args) {
  PdlTrigger();
  const KvShape& shape = args.shape;
  const int row = blockIdx.x;
  const int query_heads = args.rows.q.data == nullptr ? 0 : args.rows.q.cols / shape.head_dim;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  HeadWork work = {
      .half = args.angles.cols / 2, .head_dim = shape.head_dim, .epsilon = args.rows.epsilon};
  if (args.angles.data != nullptr) work.angles = args.angles.data + row * args.angles.stride;
  const int place = args.places[row];
  PdlWait();
  if (head < query_heads) {
    work.x = args.rows.q.data + row * args.rows.q.stride + head * shape.head_dim;
    work.norm = args.rows.q_norm;
    TransformHead(work, [&](int d, float value) { work.x[d] = value; });
  } else if (head < query_heads + shape.kv_heads) {
    const int kv_head = head - query_heads;
    work.x = args.rows.k.data + row * args.rows.k.stride + kv_head * shape.head_dim;
    work.norm = args.rows.k_norm;
    T* cache = VectorAt<T>(shape, args.layer.k_blocks, args.layer.k_staged, place, kv_head);
    if constexpr (KvElement<T>::kIsCode) {
      TransformHead(work, [&](int d, float value) { work.x[d] = value; });
      __syncwarp();
      StoreCodes(work.x, shape.head_dim, cache,
                 ScaleAt(shape, args.layer.k_blocks, args.layer.k_staged, place, kv_head));
    } else {
      TransformHead(work, [&](int d, float value) {
        work.x[d] = value;
        cache[d] = FromFloat<T>(value);
      });
    }
  } else if (head < query_heads + 2 * shape.kv_heads) {
    const int kv_head = head - query_heads - shape.kv_heads;
    const float* x = args.rows.v.data + row * args.rows.v.stride + kv_head * shape.head_dim;
    T* cache = VectorAt<T>(shape, args.layer.v_blocks, args.layer.v_staged, place, kv_head);
    if constexpr (KvElement<T>::kIsCode) {
      StoreCodes(x, shape.head_dim, cache,
                 ScaleAt(shape, args.layer.v_blocks, args.layer.v_staged, place, kv_head));
    } else {
      StoreVector(x, shape.head_dim, cache);
    }
  }
}

void LaunchStore(const Stream& stream, const StoreArgs& args) {
  const int query_heads = args.rows.q.data == nullptr ? 0 : args.rows.q.cols / args.shape.head_dim;
  const int heads = query_heads + 2 * args.shape.kv_heads;
  const dim3 grid(args.rows.k.rows, CeilDiv(heads, kWarps));
  DispatchKvType(args.shape.dtype, [&](auto type) {
    Launch(stream, &StoreKernel<decltype(type)>, grid, kThreads, 0, args);
  });
}

void LaunchHeads(const Stream& stream, MatrixView x, const HeadWork& work, MatrixView angles) {
  if (x.rows == 0) return;
  const int heads = x.cols / work.head_dim;
  const dim3 grid(x.rows, CeilDiv(heads, kWarps));
  Launch(stream, &HeadsKernel, grid, kThreads, 0, x, work, angles);
}

}  // namespace

void RmsNormHeads(const Stream& stream, MatrixView x, int head_dim, const float* weight,
                  float epsilon) {
  LaunchHeads(stream, x, {.norm = weight, .head_dim = head_dim, .epsilon = epsilon}, {});
}

void Rope(const Stream& stream, MatrixView x, int head_dim, MatrixView angles) {
  LaunchHeads(stream, x, {.half = angles.cols / 2, .head_dim = head_dim}, angles);
}

void StoreKv(const Stream& stream, const DevicePlan& plan, MatrixView k, MatrixView v,
             const KvShape& shape, const KvLayer& layer) {
  if (k.rows == 0) return;
  LaunchStore(stream, {plan.places, {.k = k, .v = v}, {}, shape, layer});
}

void RotateAndStore(const Stream& stream, const DevicePlan& plan, const QkvRows& rows,
                    MatrixView angles, const KvShape& shape, const KvLayer& layer) {
  if (rows.k.rows == 0) return;
  LaunchStore(stream, {plan.places, rows, angles, shape, layer});
}

}  // namespace talon::cuda
