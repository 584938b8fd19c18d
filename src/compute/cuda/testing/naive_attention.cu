#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "base/check.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/testing/naive_attention.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxDim = 256;

// A copy of a host array in device memory.
template <typename T>
class DeviceCopy {
 public:
  explicit DeviceCopy(const std::vector<T>& host) : count_(host.size()) {
    TALON_CUDA_CHECK(cudaMalloc(&data_, (count_ + 1) * sizeof(T)));
    TALON_CUDA_CHECK(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyDefault));
  }
  explicit DeviceCopy(size_t count) : DeviceCopy(std::vector<T>(count)) {}
  ~DeviceCopy() { cudaFree(data_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  T* data() const { return data_; }
  std::vector<T> Read() const {
    std::vector<T> host(count_);
    TALON_CUDA_CHECK(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDefault));
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// Uniform with variance 1.
__device__ float RandomAt(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15ull + index;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return (static_cast<float>(x >> 40) * (1.0f / (1 << 23)) - 1.0f) * 1.7320508f;
}

__device__ float AsE4M3(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// The first element of a place's vector: in the blocks, or in the staging for ~(staging row).
__device__ int64_t ElementOf(const KvShape& shape, int32_t place, int head) {
  if (place < 0) return (int64_t{~place} * shape.kv_heads + head) * shape.head_dim;
  const int64_t block = place / shape.block_size;
  const int within = place % shape.block_size;
  return ((block * shape.kv_heads + head) * shape.block_size + within) * shape.head_dim;
}

// Element `at` of an array of `vectors` vectors.
__device__ float Load(const KvShape& shape, const void* array, int64_t vectors, int64_t at) {
  const DType dtype = shape.dtype;
  if (IsQuantisedKv(dtype)) {
    const auto* codes = static_cast<const uint8_t*>(array);
    const uint8_t scale = codes[vectors * shape.head_dim + at / shape.head_dim];
    if (scale == 255) return __int_as_float(0x7FC00000);
    const float code = dtype == DType::kI8 ? static_cast<float>(static_cast<int8_t>(codes[at]))
                                           : static_cast<float>(AsE4M3(codes[at]));
    return ldexpf(code, scale - 127);
  }
  return dtype == DType::kF16 ? __half2float(static_cast<const __half*>(array)[at])
                              : __bfloat162float(static_cast<const __nv_bfloat16*>(array)[at]);
}
__device__ void Store(void* array, DType dtype, int64_t at, float x) {
  if (dtype == DType::kF16) {
    static_cast<__half*>(array)[at] = __float2half(x);
  } else {
    static_cast<__nv_bfloat16*>(array)[at] = __float2bfloat16(x);
  }
}

struct NaiveArgs {
  KvShape shape;
  KvLayer layer;
  const float* q;
  int64_t q_stride;
  int group;
  float scale;
  const NaiveKeys* keys;
  const int32_t* places;
  float* out;
  float* spread;

  __device__ int32_t PlaceOf(const NaiveKeys& row, int key) const {
    return key < row.prefix_len ? places[row.list_begin + key]
                                : places[row.nodes_begin + key - row.prefix_len];
  }
  __device__ float Score(const NaiveKeys& row, const float* query, int head, int key) const {
    const int32_t place = PlaceOf(row, key);
    const void* k = place < 0 ? layer.k_staged : layer.k_blocks;
    const int64_t vectors = place < 0 ? shape.StagedVectors() : shape.BlockVectors();
    const int64_t at = ElementOf(shape, place, head);
    float sum = 0;
    for (int d = threadIdx.x % 32; d < shape.head_dim; d += 32) {
      sum += query[d] * Load(shape, k, vectors, at + d);
    }
    for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    return sum * scale;
  }
};

// A block for each row and query head; each warp has every kWarps-th key.
__global__ void NaiveKernel(NaiveArgs args) {
  __shared__ float maxima[kWarps], totals[kWarps], squares[kWarps];
  __shared__ float sums[kWarps][kMaxDim];
  const int row_index = blockIdx.x, head = blockIdx.y / args.group;
  const NaiveKeys row = args.keys[row_index * args.shape.kv_heads + head];
  const float* query = args.q + row_index * args.q_stride + blockIdx.y * args.shape.head_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int count = row.prefix_len + row.num_nodes;
  float largest = -__builtin_huge_valf();
  for (int key = warp; key < count; key += kWarps) {
    largest = fmaxf(largest, args.Score(row, query, head, key));
  }
  maxima[warp] = largest;
  __syncthreads();
  for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, maxima[i]);
  float total = 0, square = 0, acc[kMaxDim / 32] = {};
  for (int key = warp; key < count; key += kWarps) {
    const float weight = expf(args.Score(row, query, head, key) - largest);
    total += weight;
    square += weight * weight;
    const int32_t place = args.PlaceOf(row, key);
    const void* v = place < 0 ? args.layer.v_staged : args.layer.v_blocks;
    const int64_t vectors = place < 0 ? args.shape.StagedVectors() : args.shape.BlockVectors();
    const int64_t at = ElementOf(args.shape, place, head);
    for (int i = 0; i * 32 + lane < args.shape.head_dim; ++i) {
      acc[i] += weight * Load(args.shape, v, vectors, at + i * 32 + lane);
    }
  }
  totals[warp] = total;
  squares[warp] = square;
  for (int i = 0; i * 32 + lane < args.shape.head_dim; ++i) sums[warp][i * 32 + lane] = acc[i];
  __syncthreads();
  total = square = 0;
  for (int i = 0; i < kWarps; ++i) {
    total += totals[i];
    square += squares[i];
  }
  const int64_t at = static_cast<int64_t>(row_index) * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) args.spread[at] = sqrtf(square) / total;
  for (int d = threadIdx.x; d < args.shape.head_dim; d += kThreads) {
    float sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += sums[i][d];
    args.out[at * args.shape.head_dim + d] = sum / total;
  }
}

__global__ void FillKernel(MatrixView matrix, uint64_t seed, float deviation) {
  for (int col = threadIdx.x; col < matrix.cols; col += blockDim.x) {
    const uint64_t index = static_cast<uint64_t>(blockIdx.x) * matrix.cols + col;
    matrix.data[blockIdx.x * matrix.stride + col] = deviation * RandomAt(seed, index);
  }
}

// Random codes and scales: of normal numbers, zeros among them.
__device__ void FillCodes(const KvShape& shape, const KvLayer& layer, int32_t place,
                          uint64_t seed) {
  for (int i = threadIdx.x; i < 2 * shape.kv_heads * shape.head_dim; i += blockDim.x) {
    const int head = i / 2 / shape.head_dim, d = i / 2 % shape.head_dim;
    const uint64_t index = static_cast<uint64_t>(place + (int64_t{1} << 32)) << 12 | i;
    const float random = RandomAt(seed, index);
    const int64_t vector = ElementOf(shape, place, head) / shape.head_dim;
    const int64_t vectors = place < 0 ? shape.StagedVectors() : shape.BlockVectors();
    auto* codes = static_cast<uint8_t*>(place < 0 ? (i % 2 == 0 ? layer.k_staged : layer.v_staged)
                                                  : (i % 2 == 0 ? layer.k_blocks : layer.v_blocks));
    // At most 1.74 * 2^6, with a scale of 2^-6 or half of it.
    codes[vector * shape.head_dim + d] =
        shape.dtype == DType::kI8
            ? static_cast<uint8_t>(static_cast<int8_t>(rintf(random * 64)))
            : static_cast<uint8_t>(__nv_cvt_float_to_fp8(random * 64, __NV_SATFINITE, __NV_E4M3) &
                                   (fabsf(random) * 64 < 1.0f / 64 ? 0x80 : 0xFF));
    if (d == 0) codes[vectors * shape.head_dim + vector] = 120 + vector % 2;
  }
}

__global__ void FillPlacesKernel(KvShape shape, KvLayer layer, const int32_t* places,
                                 uint64_t seed) {
  const int32_t place = places[blockIdx.x];
  if (IsQuantisedKv(shape.dtype)) return FillCodes(shape, layer, place, seed);
  for (int i = threadIdx.x; i < shape.kv_heads * shape.head_dim; i += blockDim.x) {
    const int64_t at = ElementOf(shape, place, i / shape.head_dim) + i % shape.head_dim;
    const uint64_t index = 2 * (static_cast<uint64_t>(place + (int64_t{1} << 32)) << 12 | i);
    Store(place < 0 ? layer.k_staged : layer.k_blocks, shape.dtype, at, RandomAt(seed, index));
    Store(place < 0 ? layer.v_staged : layer.v_blocks, shape.dtype, at, RandomAt(seed, index + 1));
  }
}

}  // namespace

NaiveResult RunNaiveAttention(const NaiveAttention& attention) {
  const KvShape& shape = attention.shape;
  TALON_CHECK(shape.dtype != DType::kF32 && shape.head_dim <= kMaxDim);
  const int rows = attention.q.rows;
  const int heads = attention.q.cols / shape.head_dim;
  const DeviceCopy<NaiveKeys> keys(attention.keys);
  const DeviceCopy<int32_t> places(attention.places);
  const DeviceCopy<float> out(static_cast<size_t>(rows) * attention.q.cols);
  const DeviceCopy<float> spread(static_cast<size_t>(rows) * heads);
  NaiveKernel<<<dim3(rows, heads), kThreads>>>({.shape = shape,
                                                .layer = attention.layer,
                                                .q = attention.q.data,
                                                .q_stride = attention.q.stride,
                                                .group = heads / shape.kv_heads,
                                                .scale = attention.scale,
                                                .keys = keys.data(),
                                                .places = places.data(),
                                                .out = out.data(),
                                                .spread = spread.data()});
  TALON_CUDA_CHECK(cudaGetLastError());
  TALON_CUDA_CHECK(cudaDeviceSynchronize());
  return {out.Read(), spread.Read()};
}

void Poison(void* device, size_t bytes) {
  TALON_CUDA_CHECK(cudaMemset(device, 0xFF, bytes));
  TALON_CUDA_CHECK(cudaDeviceSynchronize());
}

void FillRandom(MatrixView matrix, uint64_t seed, float deviation) {
  FillKernel<<<matrix.rows, 256>>>(matrix, seed, deviation);
  TALON_CUDA_CHECK(cudaDeviceSynchronize());
}

void FillPlaces(const KvShape& shape, const KvLayer& layer, const std::vector<int32_t>& places,
                uint64_t seed) {
  if (places.empty()) return;
  const DeviceCopy<int32_t> copy(places);
  FillPlacesKernel<<<places.size(), 256>>>(shape, layer, copy.data(), seed);
  TALON_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace talon::cuda
