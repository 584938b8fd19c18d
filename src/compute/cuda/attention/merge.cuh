// Merges the partials of spans (attention_work.h) into results, one warp per query.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_

#include "compute/cuda/attention/args.cuh"

namespace talon::cuda {

// The partials of a query, `stride` floats apart.
struct Partials {
  const float* first;
  int64_t stride;
  int count;

  __device__ Partials(const AttentionArgs& args, const AttentionRow& row, int head)
      : first(args.State(row.partial_begin * args.heads() + head)),
        stride(static_cast<int64_t>(args.heads()) * (kStateHeader + args.head_dim)),
        count(row.NumPartials()) {}
  // Maximum score and sum of weights (m, l). Bypasses L1 (__ldcg): other blocks may have written
  // them while this one ran.
  __device__ float2 Totals(int i) const {
    if (i >= count) return {kMinusInfinity, 0};
    return __ldcg(reinterpret_cast<const float2*>(first + i * stride));
  }
  __device__ float4 Values(int i, int column) const {
    if (i >= count) return {0, 0, 0, 0};
    return __ldcg(reinterpret_cast<const float4*>(first + i * stride + kStateHeader + column));
  }
};

__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, ShuffleXor(x, offset));
  return x;
}
__device__ __forceinline__ float WarpTotal(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = __fadd_rn(x, ShuffleXor(x, offset));
  return x;
}

// Merges columns [4 * lane, 4 * lane + 4) of each 128 from `column` on of one query. The first
// values are loaded together with the totals.
__device__ __forceinline__ void MergeColumns(const AttentionArgs& args, const Partials& partials,
                                             int row, int head, int column) {
  constexpr int kBatch = 8;
  const int lane = threadIdx.x % 32;
  const bool owns = column < args.head_dim;
  const int from = owns ? column : 0;
  float4 x[kBatch];
#pragma unroll
  for (int j = 0; j < kBatch; ++j) x[j] = partials.Values(j, from);
  float2 totals = partials.Totals(lane);
  float largest = totals.x;
  for (int i = 32 + lane; i < partials.count; i += 32) {
    largest = fmaxf(largest, partials.Totals(i).x);
  }
  largest = WarpMax(largest);
  const float base = largest == kMinusInfinity ? 0.0f : largest;
  float weight = Exp2(__fsub_rn(totals.x, base));
  float total = __fmul_rn(totals.y, weight);
  float4 acc = {0, 0, 0, 0};
  for (int first = 0; first < partials.count; first += kBatch) {
    if (first % 32 == 0 && first > 0) {
      totals = partials.Totals(first + lane);
      weight = Exp2(__fsub_rn(totals.x, base));
      total = __fmaf_rn(totals.y, weight, total);
    }
    float4 next[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) next[j] = partials.Values(first + kBatch + j, from);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float w = __shfl_sync(0xffffffffu, weight, (first + j) % 32);
      acc.x = __fmaf_rn(x[j].x, w, acc.x);
      acc.y = __fmaf_rn(x[j].y, w, acc.y);
      acc.z = __fmaf_rn(x[j].z, w, acc.z);
      acc.w = __fmaf_rn(x[j].w, w, acc.w);
      x[j] = next[j];
    }
  }
  total = WarpTotal(total);
  const float factor = total == 0 ? 0.0f : __fdiv_rn(1.0f, total);
  if (!owns) return;
  StoreResult<4>(args.out, row, head * args.head_dim + column,
                 {__fmul_rn(acc.x, factor), __fmul_rn(acc.y, factor), __fmul_rn(acc.z, factor),
                  __fmul_rn(acc.w, factor)});
}

// Merges one query, by a warp.
__device__ __forceinline__ void MergeQuery(const AttentionArgs& args, const AttentionRow& row,
                                           int row_index, int head) {
  const int lane = threadIdx.x % 32;
  const Partials partials(args, row, head);
  for (int column = 0; column < args.head_dim; column += 128) {
    MergeColumns(args, partials, row_index, head, column + 4 * lane);
  }
  if (head == args.heads() - 1) StorePadding(args.out, row_index, lane, 32);
}

// The last item to finish among those with the same queries merges their partials. Called by a
// whole block; `is_last` is in shared memory.
template <int kThreads>
__device__ __forceinline__ void MergeIfLast(const AttentionArgs& args, const AttentionItem& item,
                                            bool& is_last) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(item.arrivals) - 1;
    is_last = atomicInc(args.counters + 1 + item.counter, last) == last;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int query = item.query_begin + threadIdx.x / 32; query < item.query_end;
       query += kThreads / 32) {
    const int row = query / args.group;
    MergeQuery(args, args.plan.attention_rows[row], row,
               item.kv_head * args.group + query % args.group);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_
