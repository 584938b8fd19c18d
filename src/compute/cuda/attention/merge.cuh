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

// The partials [begin, end) of a row that make up a section.
struct SectionPartials {
  int begin;
  int end;

  __device__ SectionPartials(const AttentionRow& row, int section) {
    begin = section < row.sections ? section : row.PartialOf(section * kSectionChunks);
    end = section < row.sections ? begin + 1 : begin + kSectionChunks;
    end = min(end, row.NumPartials());
  }
};

// Merges the partials of each of the sections first, first + step, ... that exist, with all loads
// in flight at once.
template <int Width, int kCount>
__device__ __forceinline__ void MergeSections(const AttentionArgs& args, const AttentionRow& row,
                                              int head, int column, int first, int step,
                                              Running<Width> (&sections)[kCount]) {
  Running<Width> partials[kCount][kSectionChunks];
  const int num_sections = NumSections(row.num_keys);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i * step >= num_sections) continue;
    const SectionPartials range(row, first + i * step);
#pragma unroll
    for (int j = 0; j < kSectionChunks; ++j) {
      if (range.begin + j >= range.end) continue;
      const int index = (row.partial_begin + range.begin + j) * args.heads() + head;
      partials[i][j] = LoadPartial<Width>(args.State(index), column);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    sections[i].empty = true;
    if (first + i * step >= num_sections) continue;
    const SectionPartials range(row, first + i * step);
#pragma unroll
    for (int j = 0; j < kSectionChunks; ++j) {
      if (range.begin + j < range.end) sections[i].Add(partials[i][j]);
    }
  }
}

// Merges all partials of a row and query head, section by section.
template <int Width>
__device__ __forceinline__ Running<Width> MergedPartials(const AttentionArgs& args,
                                                         const AttentionRow& row, int head,
                                                         int column) {
  constexpr int kCount = 4;
  Running<Width> total;
  for (int first = 0; first < NumSections(row.num_keys); first += kCount) {
    Running<Width> sections[kCount];
    MergeSections<Width>(args, row, head, column, first, 1, sections);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!sections[i].empty) total.Add(sections[i]);
    }
  }
  return total;
}

// Writes `Width` columns of a query's result.
template <int Width>
__device__ __forceinline__ void StoreTotal(const AttentionArgs& args, int row_index, int head,
                                           int column, Running<Width> total) {
  const float factor = InverseTotal(args.sinks, head, total.m, total.l);
#pragma unroll
  for (int w = 0; w < Width; ++w) total.acc[w] = __fmul_rn(total.acc[w], factor);
  StoreResult(args.out, row_index, head * args.head_dim + column, total.acc);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_MERGE_CUH_
