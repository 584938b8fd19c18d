// Merges a query's partials (attention_work.h) into its result, in one fixed order.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_

#include "compute/cuda/attention/args.cuh"
#include "compute/cuda/attention/softmax.cuh"

namespace talon::cuda {

// The softmax state of `Width` columns.
template <int Width>
struct Running {
  float m = kMinusInfinity;
  float l = 0;
  float acc[Width] = {};
  bool empty = true;

  __device__ __forceinline__ void Add(const Running& x) {
    if (empty) {
      *this = x;
      empty = false;
      return;
    }
    const MergeFactors factors(m, x.m);
    m = factors.m;
    l = factors.Merge(l, x.l);
#pragma unroll
    for (int i = 0; i < Width; ++i) acc[i] = factors.Merge(acc[i], x.acc[i]);
  }
};

// Bypasses L1 (__ldcg): other blocks may have written the state while this one ran.
template <int Width>
__device__ __forceinline__ Running<Width> LoadPartial(const float* state, int column) {
  Running<Width> partial;
  const float2 totals = __ldcg(reinterpret_cast<const float2*>(state));
  partial.m = totals.x;
  partial.l = totals.y;
  const float* acc = state + kStateHeader + column;
  if constexpr (Width == 4) {
    const float4 x = __ldcg(reinterpret_cast<const float4*>(acc));
    partial.acc[0] = x.x, partial.acc[1] = x.y, partial.acc[2] = x.z, partial.acc[3] = x.w;
  } else {
    static_assert(Width == 1);
    partial.acc[0] = __ldcg(acc);
  }
  return partial;
}

// Merges all partials of a row and query head, section by section.
template <int Width>
__device__ __forceinline__ Running<Width> MergedPartials(const AttentionArgs& args,
                                                         const AttentionRow& row, int head,
                                                         int column) {
  constexpr int kBatch = 16;  // loads in flight
  const int num_partials = row.NumPartials();
  Running<Width> section, total;
  for (int begin = 0; begin < num_partials; begin += kBatch) {
    Running<Width> batch[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (begin + j >= num_partials) continue;
      const int index = (row.partial_begin + begin + j) * args.heads() + head;
      batch[j] = LoadPartial<Width>(args.State(index), column);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int partial = begin + j;
      if (partial >= num_partials) continue;
      section.Add(batch[j]);
      const int chunk = partial + row.sections * (kSectionChunks - 1);
      const bool section_ends = partial < row.sections ||
                                chunk % kSectionChunks == kSectionChunks - 1 ||
                                partial == num_partials - 1;
      if (!section_ends) continue;
      total.Add(section);
      section.empty = true;
    }
  }
  return total;
}

// Writes `Width` columns of a query's result.
template <int Width>
__device__ __forceinline__ void StoreMerged(const AttentionArgs& args, const AttentionRow& row,
                                            int row_index, int head, int column) {
  Running<Width> total = MergedPartials<Width>(args, row, head, column);
  const float factor = InverseTotal(args.sinks, head, total.m, total.l);
#pragma unroll
  for (int w = 0; w < Width; ++w) total.acc[w] = __fmul_rn(total.acc[w], factor);
  StoreResult(args.out, row_index, head * args.head_dim + column, total.acc);
}

// The last item to finish among those with the same queries merges their partials, one warp for
// each query. Called by a whole block; `is_last` is in shared memory.
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
  const int lane = threadIdx.x % 32;
  for (int query = item.query_begin + threadIdx.x / 32; query < item.query_end;
       query += kThreads / 32) {
    const int row_index = query / args.group;
    const int head = item.kv_head * args.group + query % args.group;
    const AttentionRow row = args.plan.attention_rows[row_index];
    for (int column = 4 * lane; column < args.head_dim; column += 128) {
      StoreMerged<4>(args, row, row_index, head, column);
    }
    if (head == args.heads() - 1) StorePadding(args.out, row_index, lane, 32);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_
