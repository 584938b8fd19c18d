#include "base/math.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/experts/work.h"

namespace talon::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kQuarters = 4;  // quarters of a logit's inputs; their sums are added in order
constexpr unsigned kAllLanes = 0xffffffffu;

// Shared memory of a block, followed by the normed row [operand_stride].
struct alignas(16) RouteShared {
  float partial[kWarps];
  float quarters[kWarps];
  bool is_last;
  float logits[kMaxExperts];
  int32_t counts[kMaxExperts];
  int32_t begins[kMaxExperts];
};

__device__ float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ __forceinline__ float Dot(float4 a, float4 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// Four values of a row, zeros behind its end.
__device__ __forceinline__ float4 LoadFour(const float* row, int i, int cols, bool aligned) {
  if (aligned && i + 4 <= cols) return *reinterpret_cast<const float4*>(row + i);
  const auto at = [&](int k) { return i + k < cols ? row[i + k] : 0.0f; };
  return {at(0), at(1), at(2), at(3)};
}

// RmsNorm of the block's row into shared memory, zeros from its end on.
__device__ void NormRow(const RouteArgs& args, RouteShared& shared, float4* normed) {
  const float* row = args.x.data + blockIdx.y * args.x.stride;
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const int vectors = static_cast<int>(args.operand_stride / 4);
  float squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    const float4 x = LoadFour(row, 4 * i, args.x.cols, aligned);
    normed[i] = x;
    squares += Dot(x, x);
  }
  squares = WarpSum(squares);
  if (threadIdx.x % 32 == 0) shared.partial[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += shared.partial[i];
  const float factor = rsqrtf(sum / args.x.cols + args.epsilon);
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    const float4 x = normed[i];
    const float4 w = LoadFour(args.norm, 4 * i, args.x.cols, true);
    normed[i] = {x.x * factor * w.x, x.y * factor * w.y, x.z * factor * w.z, x.w * factor * w.w};
  }
  __syncthreads();
}

template <typename T>
__device__ void StoreOperand(const RouteArgs& args, const float* normed) {
  T* out = static_cast<T*>(args.operand) + blockIdx.y * args.operand_stride;
  for (int i = threadIdx.x; i < args.operand_stride; i += kThreads) {
    out[i] = FromFloat<T>(normed[i] * args.operand_factor);
  }
}

// A quarter of an expert's router weights: chunks of 128 inputs, four for each lane. The first are
// read into registers, before the row is known.
class RouterQuarter {
 public:
  __device__ RouterQuarter(const RouteArgs& args, int expert, int quarter)
      : weights_(args.router + expert * args.router_stride), cols_(args.x.cols) {
    const int chunks = CeilDiv(cols_, 128);
    begin_ = chunks * quarter / kQuarters;
    end_ = chunks * (quarter + 1) / kQuarters;
  }
  __device__ void Prefetch() {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead_[i] = Load(begin_ + i);
  }
  __device__ float Sum(const float4* normed) const {
    const int lane = threadIdx.x % 32;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin_ + i < end_) sum += Dot(ahead_[i], normed[(begin_ + i) * 32 + lane]);
    }
    for (int chunk = begin_ + kAhead; chunk < end_; ++chunk) {
      sum += Dot(Load(chunk), normed[chunk * 32 + lane]);
    }
    return WarpSum(sum);
  }

 private:
  static constexpr int kAhead = 6;
  __device__ float4 Load(int chunk) const {
    const int i = chunk * 128 + 4 * (threadIdx.x % 32);
    if (chunk >= end_ || i >= cols_) return {0, 0, 0, 0};
    return __ldg(reinterpret_cast<const float4*>(weights_ + i));
  }

  const float* weights_;
  int cols_;
  int begin_, end_;
  float4 ahead_[kAhead];
};

__device__ void StoreLogit(const RouteArgs& args, int expert, float sum) {
  const float bias = args.router_bias != nullptr ? args.router_bias[expert] : 0.0f;
  args.routes.logits[int64_t{blockIdx.y} * args.experts + expert] = sum + bias;
}

// Whether this block is the last of `blocks` to come here; all see what the others wrote before.
__device__ bool IsLast(RouteShared& shared, uint32_t* counter, uint32_t blocks) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared.is_last = atomicInc(counter, blocks - 1) == blocks - 1;
  __syncthreads();
  __threadfence();
  return shared.is_last;
}

// A warp chooses the experts of its row as ChooseExperts does (host_experts.h): lane i has the
// i-th.
__device__ void ChooseExperts(const RouteArgs& args, const RouteShared& shared) {
  const int lane = threadIdx.x % 32;
  const int per_row = args.rule.per_row;
  float own = -INFINITY, before = INFINITY, largest = 0;
  int own_expert = 0, before_expert = -1;
  for (int i = 0; i < per_row; ++i) {
    float best = -INFINITY;
    int best_expert = args.experts;
    for (int e = lane; e < args.experts; e += 32) {
      const float logit = isnan(shared.logits[e]) ? -INFINITY : shared.logits[e];
      const bool is_left = logit < before || (logit == before && e > before_expert);
      if (is_left && (logit > best || (logit == best && e < best_expert))) {
        best = logit, best_expert = e;
      }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, offset);
      const int other_expert = __shfl_xor_sync(kAllLanes, best_expert, offset);
      if (other > best || (other == best && other_expert < best_expert)) {
        best = other, best_expert = other_expert;
      }
    }
    if (lane == i) own = best, own_expert = best_expert;
    if (i == 0) largest = best;
    before = best, before_expert = best_expert;
  }
  const float weight = expf(own - largest);
  float sum = 0;
  int rank = 0;
  for (int i = 0; i < per_row; ++i) {
    sum += __shfl_sync(kAllLanes, weight, i);
    rank += __shfl_sync(kAllLanes, own_expert, i) < own_expert ? 1 : 0;
  }
  if (!args.rule.normalised) {
    sum = 0;
    for (int e = lane; e < args.experts; e += 32) sum += expf(shared.logits[e] - largest);
    sum = WarpSum(sum);
  }
  if (lane >= per_row) return;
  const int slot = blockIdx.y * per_row + rank;
  args.routes.experts[slot] = own_expert;
  args.routes.weights[slot] = weight / sum;
}

// A warp turns the experts' counts into the begin of each one's pairs, and lists the tiles.
__device__ void ListTiles(const RouteArgs& args, RouteShared& shared) {
  const int lane = threadIdx.x % 32;
  int pairs = 0, tiles = 0;
  for (int first = 0; first < args.own; first += 32) {
    const int expert = first + lane;
    const int count = expert < args.own ? shared.counts[expert] : 0;
    const int own_tiles = CeilDiv(count, args.tile_pairs);
    int pairs_end = count, tiles_end = own_tiles;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int more_pairs = __shfl_up_sync(kAllLanes, pairs_end, offset);
      const int more_tiles = __shfl_up_sync(kAllLanes, tiles_end, offset);
      if (lane >= offset) pairs_end += more_pairs, tiles_end += more_tiles;
    }
    const int begin = pairs + pairs_end - count;
    if (expert < args.own) shared.begins[expert] = begin;
    for (int i = 0; i < own_tiles; ++i) {
      const int done = i * args.tile_pairs;
      args.routes.tiles[tiles + tiles_end - own_tiles + i] = {expert, begin + done,
                                                              min(args.tile_pairs, count - done)};
    }
    pairs += __shfl_sync(kAllLanes, pairs_end, 31);
    tiles += __shfl_sync(kAllLanes, tiles_end, 31);
  }
  if (lane == 0) *args.routes.num_tiles = tiles;
}

// Sorts the slots of own experts. In which order those of one expert come does not matter.
__device__ void SortPairs(const RouteArgs& args, RouteShared& shared) {
  const int slots = gridDim.y * args.rule.per_row;
  // Its place in the table, or none.
  const auto own_expert = [&](int slot) {
    const int expert = __ldcg(args.routes.experts + slot) - args.first_own;
    return expert < args.own ? expert : -1;
  };
  for (int e = threadIdx.x; e < args.own; e += kThreads) shared.counts[e] = 0;
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += kThreads) {
    const int expert = own_expert(s);
    if (expert >= 0) atomicAdd(&shared.counts[expert], 1);
  }
  __syncthreads();
  if (threadIdx.x < 32) ListTiles(args, shared);
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += kThreads) {
    const int expert = own_expert(s);
    if (expert >= 0) args.routes.pairs[atomicAdd(&shared.begins[expert], 1)] = s;
  }
}

// The logits of the block's experts: a warp for each (with many rows), or a warp for each quarter.
template <int WarpsPerExpert, typename Norm>
__device__ void RouterLogits(const RouteArgs& args, RouteShared& shared, const float4* normed,
                             const Norm& norm_row) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int expert = min((blockIdx.x * kWarps + warp) / WarpsPerExpert, args.experts - 1);
  if constexpr (WarpsPerExpert == 1) {
    norm_row();
    float sum = 0;
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      RouterQuarter weights(args, expert, quarter);
      weights.Prefetch();
      sum += weights.Sum(normed);
    }
    if (lane == 0) StoreLogit(args, expert, sum);
  } else {
    static_assert(WarpsPerExpert == kQuarters);
    RouterQuarter weights(args, expert, warp % kQuarters);
    weights.Prefetch();
    norm_row();
    const float own = weights.Sum(normed);
    if (lane == 0) shared.quarters[warp] = own;
    __syncthreads();
    if (warp % kQuarters != 0 || lane != 0) return;
    float sum = 0;
    for (int quarter = 0; quarter < kQuarters; ++quarter) sum += shared.quarters[warp + quarter];
    StoreLogit(args, expert, sum);
  }
}

// Blocks are [experts, rows], kWarps / WarpsPerExpert experts in each. The last block of a row
// chooses its experts, the last of all sorts the pairs.
template <typename T, int WarpsPerExpert>
__global__ void __launch_bounds__(kThreads) RouteKernel(const __grid_constant__ RouteArgs args) {
  auto& shared = *static_cast<RouteShared*>(DynamicShared());
  auto* normed = reinterpret_cast<float4*>(&shared + 1);
  PdlTrigger();
  RouterLogits<WarpsPerExpert>(args, shared, normed, [&] {
    PdlWait();
    NormRow(args, shared, normed);
    if (blockIdx.x == 0) StoreOperand<T>(args, reinterpret_cast<const float*>(normed));
  });
  if (!IsLast(shared, args.routes.row_blocks + blockIdx.y, gridDim.x)) return;
  for (int e = threadIdx.x; e < args.experts; e += kThreads) {
    shared.logits[e] = __ldcg(args.routes.logits + int64_t{blockIdx.y} * args.experts + e);
  }
  __syncthreads();
  if (threadIdx.x < 32) ChooseExperts(args, shared);
  if (gridDim.y > 1 && !IsLast(shared, args.routes.row_blocks + gridDim.y, gridDim.y)) return;
  __syncthreads();
  SortPairs(args, shared);
}

__global__ void CombineKernel(const __grid_constant__ MatrixView x, const float* results,
                              int per_row) {
  PdlTrigger();
  PdlWait();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x.cols) return;
  float* to = x.data + blockIdx.y * x.stride + i;
  const float* from = results + int64_t{blockIdx.y} * per_row * x.cols + i;
  float sum = *to;
  for (int slot = 0; slot < per_row; ++slot) sum += from[int64_t{slot} * x.cols];
  *to = sum;
}

}  // namespace

void LaunchRoute(const Stream& stream, const RouteArgs& args, DType operand) {
  const size_t shared = sizeof(RouteShared) + args.operand_stride * sizeof(float);
  const int warps = args.x.rows <= 16 ? kQuarters : 1;  // for each expert
  const dim3 grid(CeilDiv(args.experts * warps, kWarps), args.x.rows);
  DispatchFloatType(operand, [&]<typename T>(T) {
    const auto kernel = warps == 1 ? RouteKernel<T, 1> : RouteKernel<T, kQuarters>;
    if (shared > 48 * 1024) AllowSharedMemory(kernel, shared);
    Launch(stream, kernel, grid, kThreads, shared, args);
  });
}

void LaunchCombine(const Stream& stream, MatrixView x, const float* results, int per_row) {
  Launch(stream, CombineKernel, dim3(CeilDiv(x.cols, kThreads), x.rows), kThreads, 0, x, results,
         per_row);
}

}  // namespace talon::cuda
