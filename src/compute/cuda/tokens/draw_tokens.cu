#include <cfloat>
#include <cmath>

#include "base/math.h"
#include "compute/cuda/tokens/draw_tokens.h"
#include "compute/cuda/tokens/top_k.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kAll = 0xffffffffu;

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
  uint64_t best[kWarps];
  double sums[3][kWarps];
  int counts[kWarps];
};

// The kept tokens: those of keys above `least`, and the first `ties` of those that have it.
struct Cut {
  uint32_t least = 1;
  int ties = INT_MAX;
};

// A row of logits. Keys order it as the host does; 0 is a token that can never be drawn.
struct Row {
  const float* logits;
  int cols;
  float largest = 0;
  float temperature = 1;

  __device__ uint32_t Key(int i) const {
    float x = i < cols ? logits[i] : -INFINITY;
    if (x == 0) x = 0;  // zeros are equal
    return x > -INFINITY ? OrderedBits(x) : 0;
  }
  __device__ float WeightOfKey(uint32_t key) const {
    const float x = __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
    return key == 0 ? 0.0f : ExpNonPositive(__fdiv_rn(__fsub_rn(x, largest), temperature));
  }
};

// Block-wide sums, the same in all threads.
template <int N>
__device__ void SumOverBlock(double (&values)[N], Shared& shared) {
  __syncthreads();  // what was there has been read
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (int offset = 16; offset > 0; offset /= 2) {
      values[i] += __shfl_xor_sync(kAll, values[i], offset);
    }
    if (threadIdx.x % 32 == 0) shared.sums[i][threadIdx.x / 32] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = 0;
    for (int w = 0; w < kWarps; ++w) values[i] += shared.sums[i][w];
  }
}

// The token with the largest logit as a key (top_k.h), 0: there is none.
__device__ uint64_t BestOf(const Row& row, Shared& shared) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < row.cols; i += kThreads) {
    const float x = row.logits[i];
    const uint64_t key = x > -INFINITY ? OrderedKey(x == 0 ? 0.0f : x, i) : 0;
    best = key > best ? key : best;
  }
  best = WarpMaxKey(best);
  if (threadIdx.x % 32 == 0) shared.best[threadIdx.x / 32] = best;
  __syncthreads();
  return WarpMaxKey(shared.best[threadIdx.x % 32]);
}

// Sum of measure(key) over the tokens whose keys are above `key`.
template <typename Measure>
__device__ double SumAbove(const Row& row, uint32_t key, const Measure& measure, Shared& shared) {
  double sum[1] = {0};
  for (int i = threadIdx.x; i < row.cols; i += kThreads) {
    const uint32_t own = row.Key(i);
    if (own > key) sum[0] += measure(own);
  }
  SumOverBlock(sum, shared);
  return sum[0];
}

// The largest key from which on upwards the sum reaches `wanted`; 0: not even all keys do.
template <typename Measure>
__device__ uint32_t LargestReaching(const Row& row, double wanted, const Measure& measure,
                                    Shared& shared) {
  uint32_t least = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    const uint32_t step = 1u << shift;
    double sums[3] = {};
    for (int i = threadIdx.x; i < row.cols; i += kThreads) {
      const uint32_t key = row.Key(i);
      if (key < least + step) continue;
      const double value = measure(key);
      sums[0] += value;
      if (key >= least + 2 * step) sums[1] += value;
      if (key >= least + 3 * step) sums[2] += value;
    }
    SumOverBlock(sums, shared);
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

__device__ Cut CutOf(const Row& row, const RowDraw& draw, Shared& shared) {
  Cut cut;
  const auto one = [](uint32_t) { return 1.0; };
  const auto weight = [&row](uint32_t key) { return static_cast<double>(row.WeightOfKey(key)); };
  const bool has_top_k = draw.top_k > 0 && draw.top_k < row.cols;
  if (has_top_k) {
    const uint32_t least = LargestReaching(row, draw.top_k, one, shared);
    if (least > 0) cut = {least, draw.top_k - static_cast<int>(SumAbove(row, least, one, shared))};
  }
  if (!(draw.top_p < 1)) return cut;
  const bool has_ties = cut.ties < INT_MAX;  // the cut so far goes through equal logits
  const double above = has_ties ? SumAbove(row, cut.least, weight, shared) : 0;
  const double total =
      has_ties ? above + cut.ties * weight(cut.least) : SumAbove(row, 0, weight, shared);
  const double target = draw.top_p * total;
  if (has_ties && above < target) {
    cut.ties = TiesToReach(above, weight(cut.least), target, cut.ties);
    return cut;
  }
  const uint32_t least = LargestReaching(row, target, weight, shared);
  if (least == 0) return cut;
  const double higher = SumAbove(row, least, weight, shared);
  return {least, TiesToReach(higher, weight(least), target, INT_MAX)};
}

// A warp's run of consecutive tokens, 32 at a time. Calls visit(first token of the 32, weight of
// this lane's token if it is kept, else 0) until that returns true.
struct WarpRun {
  int begin, end;
  __device__ explicit WarpRun(int cols) {
    const int length = CeilDiv(cols, kThreads) * 32;
    begin = threadIdx.x / 32 * length;
    end = min(cols, begin + length);
  }
  template <typename Visit>
  __device__ void ForKept(const Row& row, const Cut& cut, float min_p, int ties_before,
                          const Visit& visit) const {
    const uint32_t lower = (1u << (threadIdx.x % 32)) - 1;
    for (int first = begin; first < end; first += 32) {
      const uint32_t key = row.Key(first + threadIdx.x % 32);
      const uint32_t tied = __ballot_sync(kAll, key == cut.least);
      const bool kept =
          key > cut.least || (key == cut.least && ties_before + __popc(tied & lower) < cut.ties);
      ties_before += __popc(tied);
      float weight = kept ? row.WeightOfKey(key) : 0.0f;
      if (weight < min_p) weight = 0;
      if (visit(first, weight)) return;
    }
  }
};

__device__ int TiesBeforeWarp(const Row& row, const Cut& cut, const WarpRun& run, Shared& shared) {
  int count = 0;
  for (int first = run.begin; first < run.end; first += 32) {
    count += __popc(__ballot_sync(kAll, row.Key(first + threadIdx.x % 32) == cut.least));
  }
  if (threadIdx.x % 32 == 0) shared.counts[threadIdx.x / 32] = count;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < static_cast<int>(threadIdx.x / 32); ++w) before += shared.counts[w];
  return before;
}

// Token by token in ascending order, the first whose running sum exceeds u of the total.
__device__ void DrawKept(const Row& row, const Cut& cut, float min_p, double u, Shared& shared,
                         int32_t* out) {
  const WarpRun run(row.cols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int ties = TiesBeforeWarp(row, cut, run, shared);
  double own = 0;
  run.ForKept(row, cut, min_p, ties, [&](int, float weight) {
    own += weight;
    return false;
  });
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(kAll, own, offset);
  __syncthreads();
  if (lane == 0) shared.sums[0][warp] = own;
  __syncthreads();
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += shared.sums[0][w];
  const double target = u * total;
  double sum = 0, before = 0;
  int winner = -1;  // the warp that has the token
  for (int w = 0; w < kWarps; ++w) {
    const bool reached = winner >= 0 && before + shared.sums[0][winner] > target;
    if (!reached && shared.sums[0][w] > 0) {
      winner = w;
      before = sum;
    }
    sum += shared.sums[0][w];
  }
  if (warp != winner) return;
  int token = -1;
  run.ForKept(row, cut, min_p, ties, [&](int first, float weight) {
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
  if (lane == 0) *out = token;
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(const __grid_constant__ DevicePlan plan, MatrixView logits, const RowDraw* draws,
               int32_t* out) {
  __shared__ Shared shared;
  PdlTrigger();
  PdlWait();
  const RowDraw draw = draws[blockIdx.x];
  Row row{logits.data + blockIdx.x * logits.stride, logits.cols};
  const uint64_t best = BestOf(row, shared);
  const int token = best == 0 ? -1 : IndexOfKey(best);
  row.largest = token < 0 ? 0.0f : row.logits[token];
  if (token < 0 || draw.temperature == 0 || row.largest > FLT_MAX) {
    if (threadIdx.x == 0) out[blockIdx.x] = token;
    return;
  }
  row.temperature = draw.temperature;
  const Cut cut = CutOf(row, draw, shared);
  const uint64_t position = static_cast<uint64_t>(plan.positions[plan.output_rows[blockIdx.x]]) + 1;
  __syncthreads();
  DrawKept(row, cut, draw.min_p, UniformOf(draw, position), shared, out + blockIdx.x);
}

}  // namespace

void DrawTokens(const Stream& stream, const DevicePlan& plan, MatrixView logits,
                const RowDraw* draws, int32_t* out) {
  if (logits.rows == 0) return;
  Launch(stream, DrawKernel, logits.rows, kThreads, 0, plan, logits, draws, out);
}

}  // namespace talon::cuda
