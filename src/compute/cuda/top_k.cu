#include <algorithm>
#include <cmath>

#include "compute/cuda/top_k.h"

namespace talon::cuda {
namespace {

constexpr int kArgmaxThreads = 256;
constexpr int kLaneValues = 32;
constexpr int kChunk = 32 * kLaneValues;

__global__ void ArgmaxKernel(const float* x, int64_t stride, int cols, uint64_t* keys) {
  __shared__ uint64_t best_of_warp[kArgmaxThreads / 32];
  LetNextStart();
  WaitForInputs();
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

// Writes the k largest of the warp's keys, largest first; 0 where there are fewer.
__device__ void SelectBest(uint64_t (&keys)[kLaneValues], int k, uint64_t* out) {
  for (int n = 0; n < k; ++n) {
    uint64_t mine = 0;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) mine = keys[i] > mine ? keys[i] : mine;
    const uint64_t best = WarpMaxKey(mine);
    if (threadIdx.x == 0) out[n] = best;
    if (mine != best) continue;
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) {
      if (keys[i] == best) keys[i] = 0;
    }
  }
}

// The largest value of a chunk and the sum of exp(value - largest): what log-softmax needs.
struct ChunkSum {
  float largest;
  float sum;
};

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
    // -inf less -inf is no number, but such a value has no weight; NaN and +inf must show.
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
  LetNextStart();
  WaitForInputs();
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
  LetNextStart();
  WaitForInputs();
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

// One block a row: the row's normaliser from its chunks, in order, then the entries.
__global__ void EntriesKernel(const uint64_t* keys, const ChunkSum* sums, int chunks,
                              const float* x, int64_t stride, int k, TopKEntry* out,
                              const int32_t* out_rows) {
  __shared__ float normaliser[2];
  LetNextStart();
  WaitForInputs();
  const int row = blockIdx.x;
  if (threadIdx.x == 0) {
    const ChunkSum* mine = sums + static_cast<int64_t>(row) * chunks;
    float largest = -INFINITY;
    for (int i = 0; i < chunks; ++i) largest = fmaxf(largest, mine[i].largest);
    float sum = 0;
    for (int i = 0; i < chunks; ++i) {
      if (mine[i].sum != 0) sum += mine[i].sum * expf(mine[i].largest - largest);
    }
    normaliser[0] = largest;
    normaliser[1] = logf(sum);
  }
  __syncthreads();
  const int64_t out_row = out_rows == nullptr ? row : out_rows[row];
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    const int32_t id = IndexOfKey(keys[static_cast<int64_t>(row) * k + i]);
    const float log_prob = x[row * stride + id] - normaliser[0] - normaliser[1];
    out[out_row * k + i] = {id, isnan(normaliser[1]) ? normaliser[1] : log_prob};
  }
}

int ChunksOf(int count) { return (count + kChunk - 1) / kChunk; }

}  // namespace

void ArgmaxKeys(const Stream& stream, MatrixView x, uint64_t* keys) {
  Launch(stream, ArgmaxKernel, dim3(kArgmaxParts, x.rows), kArgmaxThreads, 0, x.data, x.stride,
         x.cols, keys);
}

size_t TopKScratchBytes(int rows, int cols, int k) {
  const size_t chunks = ChunksOf(cols);
  return rows * chunks * (2 * k * sizeof(uint64_t) + sizeof(ChunkSum));
}

void TopK(const Stream& stream, MatrixView x, int k, void* scratch, TopKEntry* out,
          const int32_t* out_rows) {
  TALON_CHECK(k <= kTopKLimit && k <= x.cols);
  const int chunks = ChunksOf(x.cols);
  const size_t level = static_cast<size_t>(x.rows) * chunks * k;
  auto* from = static_cast<uint64_t*>(scratch);
  uint64_t* to = from + level;
  auto* sums = reinterpret_cast<ChunkSum*>(to + level);
  Launch(stream, ChunkTopKKernel, dim3(chunks, x.rows), 32, 0, x.data, x.stride, x.cols, k, from,
         sums);
  for (int left = chunks; left > 1;) {
    const int count = left * k;
    left = ChunksOf(count);
    Launch(stream, MergeTopKKernel, dim3(left, x.rows), 32, 0, from, count, k, to);
    std::swap(from, to);
  }
  Launch(stream, EntriesKernel, x.rows, 32, 0, from, sums, chunks, x.data, x.stride, k, out,
         out_rows);
}

}  // namespace talon::cuda
