#include <cfloat>
#include <cmath>

#include "base/math.h"
#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/tokens/draw_tokens.h"
#include "compute/cuda/tokens/top_k.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kAll = 0xffffffffu;
// A row that is as long as this is shared by the blocks of a cluster.
constexpr int kLongRow = 32 * 1024;
constexpr int kBlocksOfLongRow = 8;

// The host's uniform draw (base/random.h): Philox4x32-10, stream 0.
__device__ double UniformOf(const RowDraw& draw, uint64_t position) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32);
  uint32_t c2 = draw.choice << 8, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(draw.seed), k1 = static_cast<uint32_t>(draw.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return static_cast<double>((uint64_t{c0} << 32 | c1) >> 11) * 0x1p-53;
}

// exp(x) for x <= 0 by the polynomial of sampling_math.cc, every operation rounded on its own.
__device__ __forceinline__ float ExpNonPositive(float x) {
  constexpr float kShift = 12582912.0f;
  const uint32_t bits = __float_as_uint(x) | 0x80000000u;
  const float bounded = __uint_as_float(min(bits, __float_as_uint(-88.0f)));
  const float shifted = __fadd_rn(__fmul_rn(bounded, 1.44269504f), kShift);
  const float n = __fsub_rn(shifted, kShift);
  const float r =
      __fadd_rn(__fsub_rn(bounded, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
  float p = 1.0f / 5040;
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 720);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 120);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 24);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 6);
  p = __fadd_rn(__fmul_rn(p, r), 0.5f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  const int exponent = __float_as_int(shifted) - __float_as_int(kShift);
  return __fmul_rn(p, __int_as_float((exponent + 127) << 23));
}

struct Shared {
  double sums[3][kWarps];
  double totals[3];
  uint64_t best[kWarps];
  int counts[kWarps];
  // Read by all blocks of the cluster. Two of each kind of sums, for one exchange after the other.
  double block_sums[2][3];
  uint64_t block_best;
  int block_ties;
};

// A cluster has a row; before sm_90 it is one block.
struct Cluster {
  int blocks;
  int rank;
  int exchanges = 0;

  __device__ void Sync() const {
#if __CUDA_ARCH__ >= 900
    ClusterSync();
#else
    __syncthreads();
#endif
  }
  // The same variable of another block's shared memory.
  template <typename T>
  __device__ const T& Of(int block, const T& own) const {
#if __CUDA_ARCH__ >= 900
    return *static_cast<const T*>(__cluster_map_shared_rank(&own, block));
#else
    return own;
#endif
  }
};

// The kept tokens: those of keys above `least`, and the first `ties` of those that have it.
struct Cut {
  uint32_t least = 1;
  int ties = INT_MAX;
};

// Orders logits as the host does; 0 is a token that can never be drawn.
__device__ __forceinline__ uint32_t KeyOf(float x) {
  if (x == 0) x = 0;  // zeros are equal
  return x > -INFINITY ? OrderedBits(x) : 0;
}
__device__ __forceinline__ float LogitOfKey(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// The block's part of a row, which it reads many times: from shared memory where the keys fit.
struct Part {
  const float* logits;
  int first;  // index of its first token
  int count;
  uint32_t* keys;     // [count] or null
  float largest = 0;  // the row's
  float temperature = 1;

  __device__ uint32_t Key(int i) const {
    if (i >= count) return 0;
    return keys != nullptr ? keys[i] : KeyOf(logits[i]);
  }
  __device__ float WeightOfKey(uint32_t key) const {
    return key == 0 ? 0.0f
                    : ExpNonPositive(__fdiv_rn(__fsub_rn(LogitOfKey(key), largest), temperature));
  }
};

// Sums over all blocks, the same in all threads.
template <int N>
__device__ void SumOverCluster(double (&values)[N], Cluster& cluster, Shared& shared) {
  __syncthreads();  // what was there has been read
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (int offset = 16; offset > 0; offset /= 2) {
      values[i] += __shfl_xor_sync(kAll, values[i], offset);
    }
    if (threadIdx.x % 32 == 0) shared.sums[i][threadIdx.x / 32] = values[i];
  }
  __syncthreads();
  double(&block_sums)[3] = shared.block_sums[cluster.exchanges++ % 2];
  if (threadIdx.x < N) {
    double sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared.sums[threadIdx.x][w];
    block_sums[threadIdx.x] = sum;
  }
  cluster.Sync();
  if (threadIdx.x < N) {
    double sum = 0;
    for (int b = 0; b < cluster.blocks; ++b) sum += cluster.Of(b, block_sums[threadIdx.x]);
    shared.totals[threadIdx.x] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = shared.totals[i];
}

// Fills the part's keys. Returns the row's token with the largest logit as a key (top_k.h), 0:
// there is none.
__device__ uint64_t LoadKeys(const Part& part, const Cluster& cluster, Shared& shared) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < part.count; i += kThreads) {
    const uint32_t key = KeyOf(part.logits[i]);
    if (part.keys != nullptr) part.keys[i] = key;
    const uint64_t ranked =
        static_cast<uint64_t>(key) << 32 | (0xffffffffu - static_cast<uint32_t>(part.first + i));
    if (key != 0 && ranked > best) best = ranked;
  }
  best = WarpMaxKey(best);
  if (threadIdx.x % 32 == 0) shared.best[threadIdx.x / 32] = best;
  __syncthreads();
  best = WarpMaxKey(shared.best[threadIdx.x % 32]);
  if (threadIdx.x == 0) shared.block_best = best;
  cluster.Sync();
  return WarpMaxKey(cluster.Of(threadIdx.x % cluster.blocks, shared.block_best));
}

// Sum of measure(key) over the tokens whose keys are above `key`.
template <typename Measure>
__device__ double SumAbove(const Part& part, uint32_t key, const Measure& measure, Cluster& cluster,
                           Shared& shared) {
  double sum[1] = {0};
  for (int i = threadIdx.x; i < part.count; i += kThreads) {
    const uint32_t own = part.Key(i);
    if (own > key) sum[0] += measure(own);
  }
  SumOverCluster(sum, cluster, shared);
  return sum[0];
}

// The largest key from which on upwards the sum reaches `wanted`; 0: not even all keys do.
template <typename Measure>
__device__ uint32_t LargestReaching(const Part& part, double wanted, const Measure& measure,
                                    Cluster& cluster, Shared& shared) {
  uint32_t least = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    const uint32_t step = 1u << shift;
    double sums[3] = {};
    for (int i = threadIdx.x; i < part.count; i += kThreads) {
      const uint32_t key = part.Key(i);
      if (key < least + step) continue;
      const double value = measure(key);
      sums[0] += value;
      if (key >= least + 2 * step) sums[1] += value;
      if (key >= least + 3 * step) sums[2] += value;
    }
    SumOverCluster(sums, cluster, shared);
    const int steps = sums[2] >= wanted ? 3 : sums[1] >= wanted ? 2 : sums[0] >= wanted ? 1 : 0;
    least += steps * step;
  }
  return least;
}

// How many tokens of weight `weight` bring the sum to `target`, at least one and at most `most`.
__device__ int TiesToReach(double sum, double weight, double target, int most) {
  int ties = 0;
  do {
    sum += weight;
    ++ties;
  } while (sum < target && ties < most);
  return ties;
}

__device__ Cut CutOf(const Part& part, int cols, const RowDraw& draw, Cluster& cluster,
                     Shared& shared) {
  Cut cut;
  const auto one = [](uint32_t) { return 1.0; };
  const auto weight = [&part](uint32_t key) { return static_cast<double>(part.WeightOfKey(key)); };
  const auto above = [&](uint32_t key, const auto& measure) {
    return SumAbove(part, key, measure, cluster, shared);
  };
  if (draw.top_k > 0 && draw.top_k < cols) {
    const uint32_t least = LargestReaching(part, draw.top_k, one, cluster, shared);
    if (least > 0) cut = {least, draw.top_k - static_cast<int>(above(least, one))};
  }
  if (!(draw.top_p < 1)) return cut;
  const bool has_ties = cut.ties < INT_MAX;  // the cut so far goes through equal logits
  const double higher = has_ties ? above(cut.least, weight) : 0;
  const double total = has_ties ? higher + cut.ties * weight(cut.least) : above(0, weight);
  const double target = draw.top_p * total;
  if (has_ties && higher < target) {
    cut.ties = TiesToReach(higher, weight(cut.least), target, cut.ties);
    return cut;
  }
  const uint32_t least = LargestReaching(part, target, weight, cluster, shared);
  if (least == 0) return cut;
  return {least, TiesToReach(above(least, weight), weight(least), target, INT_MAX)};
}

// A warp's run of consecutive tokens, 32 at a time. Calls visit(first token of the 32 in the part,
// weight of this lane's token if it is kept, else 0) until that returns true.
struct WarpRun {
  int begin, end;
  __device__ explicit WarpRun(int count) {
    const int length = CeilDiv(count, kThreads) * 32;
    begin = threadIdx.x / 32 * length;
    end = min(count, begin + length);
  }
  template <typename Visit>
  __device__ void ForKept(const Part& part, const Cut& cut, float min_p, int ties_before,
                          const Visit& visit) const {
    const uint32_t lower = (1u << (threadIdx.x % 32)) - 1;
    for (int first = begin; first < end; first += 32) {
      const uint32_t key = part.Key(first + threadIdx.x % 32);
      const uint32_t tied = __ballot_sync(kAll, key == cut.least);
      const bool kept =
          key > cut.least || (key == cut.least && ties_before + __popc(tied & lower) < cut.ties);
      ties_before += __popc(tied);
      float weight = kept ? part.WeightOfKey(key) : 0.0f;
      if (weight < min_p) weight = 0;
      if (visit(first, weight)) return;
    }
  }
};

// Tokens that have the key of the cut and come before this warp's.
__device__ int TiesBeforeWarp(const Part& part, const Cut& cut, const WarpRun& run,
                              const Cluster& cluster, Shared& shared) {
  int count = 0;
  for (int first = run.begin; first < run.end; first += 32) {
    count += __popc(__ballot_sync(kAll, part.Key(first + threadIdx.x % 32) == cut.least));
  }
  if (threadIdx.x % 32 == 0) shared.counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.block_ties = 0;
    for (int w = 0; w < kWarps; ++w) shared.block_ties += shared.counts[w];
  }
  cluster.Sync();
  int before = 0;
  for (int b = 0; b < cluster.rank; ++b) before += cluster.Of(b, shared.block_ties);
  for (int w = 0; w < static_cast<int>(threadIdx.x / 32); ++w) before += shared.counts[w];
  return before;
}

// The one of `count` runs of tokens, of these weights in order, in which the running sum exceeds
// `target`, or the last with a weight; -1 if none has any. `before`: the sum ahead of it.
template <typename Weight>
__device__ int RunReaching(int count, double target, const Weight& weight, double* before) {
  double sum = *before, reached = 0;
  int winner = -1;
  for (int i = 0; i < count && !(winner >= 0 && reached > target); ++i) {
    const double own = weight(i);
    if (own > 0) {
      winner = i;
      *before = sum;
      reached = sum + own;
    }
    sum += own;
  }
  return winner;
}

// Token by token in ascending order, the first whose running sum exceeds u of the total.
__device__ void DrawKept(const Part& part, const Cut& cut, float min_p, double u, Cluster& cluster,
                         Shared& shared, int32_t* out) {
  const WarpRun run(part.count);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int ties = TiesBeforeWarp(part, cut, run, cluster, shared);
  double total[1] = {0};
  run.ForKept(part, cut, min_p, ties, [&](int, float weight) {
    total[0] += weight;
    return false;
  });
  SumOverCluster(total, cluster, shared);
  const double target = u * total[0];
  const double(&block_sums)[3] = shared.block_sums[(cluster.exchanges - 1) % 2];
  double before = 0;
  const int block = RunReaching(
      cluster.blocks, target, [&](int b) { return cluster.Of(b, block_sums[0]); }, &before);
  if (block != cluster.rank) return;
  const int winner = RunReaching(
      kWarps, target, [&](int w) { return shared.sums[0][w]; }, &before);
  if (warp != winner) return;
  int token = -1;
  run.ForKept(part, cut, min_p, ties, [&](int first, float weight) {
    double running = weight;
    for (int offset = 1; offset < 32; offset *= 2) {
      const double other = __shfl_up_sync(kAll, running, offset);
      if (lane >= offset) running += other;
    }
    const uint32_t above = __ballot_sync(kAll, weight > 0 && before + running > target);
    const uint32_t possible = __ballot_sync(kAll, weight > 0);
    before += __shfl_sync(kAll, running, 31);
    if (above != 0) token = first + __ffs(above) - 1;
    if (above == 0 && possible != 0) token = first + 31 - __clz(possible);
    return above != 0;
  });
  if (lane == 0) *out = part.first + token;
}

// `blocks` of a cluster for each row, each with `length` of its tokens.
__global__ void __launch_bounds__(kThreads)
    DrawKernel(const __grid_constant__ DevicePlan plan, MatrixView logits, const RowDraw* draws,
               int32_t* out, int blocks, int length, bool in_shared) {
  __shared__ Shared shared;
  PdlTrigger();
  PdlWait();
  const int row = blockIdx.x / blocks;
  Cluster cluster{.blocks = blocks, .rank = static_cast<int>(blockIdx.x) % blocks};
  const int first = cluster.rank * length;
  Part part{.logits = logits.data + row * logits.stride + first,
            .first = first,
            .count = max(0, min(length, logits.cols - first)),
            .keys = in_shared ? static_cast<uint32_t*>(DynamicShared()) : nullptr};
  const RowDraw draw = draws[row];
  const uint64_t best = LoadKeys(part, cluster, shared);
  part.largest = LogitOfKey(static_cast<uint32_t>(best >> 32));
  if (best == 0 || draw.temperature == 0 || part.largest > FLT_MAX) {
    if (cluster.rank == 0 && threadIdx.x == 0) out[row] = best == 0 ? -1 : IndexOfKey(best);
  } else {
    part.temperature = draw.temperature;
    const Cut cut = CutOf(part, logits.cols, draw, cluster, shared);
    const uint64_t position = static_cast<uint64_t>(plan.positions[plan.output_rows[row]]) + 1;
    DrawKept(part, cut, draw.min_p, UniformOf(draw, position), cluster, shared, out + row);
  }
  cluster.Sync();  // other blocks may still read this one's shared memory
}

}  // namespace

void DrawTokens(const Stream& stream, const DevicePlan& plan, MatrixView logits,
                const RowDraw* draws, int32_t* out) {
  if (logits.rows == 0) return;
  const bool has_clusters = stream.uses_pdl;  // both since sm_90
  const int blocks = has_clusters && logits.cols >= kLongRow ? kBlocksOfLongRow : 1;
  const int length = RoundUp(CeilDiv(logits.cols, blocks), 32);
  const size_t bytes = static_cast<size_t>(length) * sizeof(uint32_t);
  const bool in_shared = bytes + sizeof(Shared) + 1024 <= static_cast<size_t>(stream.shared_memory);
  if (in_shared) AllowSharedMemory(DrawKernel, bytes);
  LaunchClusters(stream, DrawKernel, blocks, logits.rows * blocks, kThreads, in_shared ? bytes : 0,
                 plan, logits, draws, out, blocks, length, in_shared);
}

}  // namespace talon::cuda
