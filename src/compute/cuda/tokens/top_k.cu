#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "compute/cuda/tokens/top_k_row.cuh"

namespace talon::cuda {
namespace {

constexpr int kArgmaxThreads = 256;

__global__ void ArgmaxKernel(const float* x, int64_t stride, int cols, uint64_t* keys) {
  __shared__ uint64_t best_of_warp[kArgmaxThreads / 32];
  PdlTrigger();
  PdlWait();
  const float* row = x + blockIdx.y * stride;
  uint64_t best = 0;
  for (int i = blockIdx.x * kArgmaxThreads + threadIdx.x; i < cols;
       i += kArgmaxParts * kArgmaxThreads) {
    const uint64_t key = OrderedKey(row[i], i);
    best = key > best ? key : best;
  }
  best = WarpMaxKey(best);
  if (threadIdx.x % 32 == 0) best_of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = WarpMaxKey(threadIdx.x < kArgmaxThreads / 32 ? best_of_warp[threadIdx.x] : 0);
  if (threadIdx.x == 0) keys[blockIdx.y * kArgmaxParts + blockIdx.x] = best;
}

__device__ ChunkSum SumOf(const float (&values)[kLaneValues], int first, int cols) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    if (first + 32 * i < cols) largest = fmaxf(largest, values[i]);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    // -inf minus -inf is NaN, but such a value has weight 0; NaN and +inf must propagate.
    if (first + 32 * i < cols && values[i] != -INFINITY) sum += expf(values[i] - largest);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  return {largest, sum};
}

// One warp a chunk: grid (chunks, rows).
__global__ void ChunkTopKKernel(const float* x, int64_t stride, int cols, int k, uint64_t* keys_out,
                                ChunkSum* sums) {
  PdlTrigger();
  PdlWait();
  const float* row = x + blockIdx.y * stride;
  const int first = blockIdx.x * kChunk + threadIdx.x;
  float values[kLaneValues];
  uint64_t keys[kLaneValues];
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int column = first + 32 * i;
    values[i] = column < cols ? row[column] : 0.0f;
    keys[i] = column < cols ? OrderedKey(values[i], column) : 0;
  }
  const int chunk = blockIdx.y * gridDim.x + blockIdx.x;
  const ChunkSum sum = SumOf(values, first, cols);
  if (threadIdx.x == 0) sums[chunk] = sum;
  SelectBest(keys, k, keys_out + static_cast<int64_t>(chunk) * k);
}

__global__ void MergeTopKKernel(const uint64_t* keys_in, int count, int k, uint64_t* keys_out) {
  PdlTrigger();
  PdlWait();
  const uint64_t* row = keys_in + static_cast<int64_t>(blockIdx.y) * count;
  uint64_t keys[kLaneValues];
#pragma unroll
  for (int i = 0; i < kLaneValues; ++i) {
    const int at = blockIdx.x * kChunk + 32 * i + threadIdx.x;
    keys[i] = at < count ? row[at] : 0;
  }
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  SelectBest(keys, k, keys_out + chunk * k);
}

// One warp a row.
__global__ void EntriesKernel(const RankedChunks ranked, int k, TopKEntry* out) {
  __shared__ uint64_t best[kTopKLimit];
  PdlTrigger();
  PdlWait();
  RankRow(ranked, blockIdx.x, k, best, out + static_cast<int64_t>(blockIdx.x) * k);
}

int ChunksOf(int count) { return CeilDiv(count, kChunk); }

}  // namespace

void ArgmaxKeys(const Stream& stream, MatrixView x, uint64_t* keys) {
  Launch(stream, ArgmaxKernel, dim3(kArgmaxParts, x.rows), kArgmaxThreads, 0, x.data, x.stride,
         x.cols, keys);
}

size_t TopKScratchBytes(int rows, int cols, int k) {
  const size_t chunks = ChunksOf(cols);
  return rows * chunks * (2 * k * sizeof(uint64_t) + sizeof(ChunkSum));
}

RankedChunks RankChunks(const Stream& stream, MatrixView x, int k, void* scratch) {
  TALON_CHECK(k <= kTopKLimit && k <= x.cols);
  const int chunks = ChunksOf(x.cols);
  const size_t level = static_cast<size_t>(x.rows) * chunks * k;
  auto* from = static_cast<uint64_t*>(scratch);
  uint64_t* to = from + level;
  auto* sums = reinterpret_cast<ChunkSum*>(to + level);
  Launch(stream, ChunkTopKKernel, dim3(chunks, x.rows), 32, 0, x.data, x.stride, x.cols, k, from,
         sums);
  int count = chunks * k;
  while (count > kChunk) {
    const int left = ChunksOf(count);
    Launch(stream, MergeTopKKernel, dim3(left, x.rows), 32, 0, from, count, k, to);
    std::swap(from, to);
    count = left * k;
  }
  return {x.data, x.stride, from, count, sums, chunks};
}

void TopK(const Stream& stream, MatrixView x, int k, void* scratch, TopKEntry* out) {
  const RankedChunks ranked = RankChunks(stream, x, k, scratch);
  Launch(stream, EntriesKernel, x.rows, 32, 0, ranked, k, out);
}

}  // namespace talon::cuda
