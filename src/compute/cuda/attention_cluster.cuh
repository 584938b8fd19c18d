// How the blocks of a cluster, which work on runs of keys for the same queries, make one result of
// what each of them has in its shared memory (attention_work.h).
#ifndef TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_

#include "compute/cuda/attention_boxes.cuh"
#include "compute/cuda/attention_item.cuh"
#include "compute/cuda/attention_merge.cuh"

namespace talon::cuda {

__device__ __forceinline__ int RankInCluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ int ClusterSize() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}
__device__ __forceinline__ float2 LoadPairFromCluster(uint32_t shared, int rank) {
  uint32_t remote;
  float2 value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(remote)
               : "memory");
  return value;
}
__device__ __forceinline__ void StoreToCluster(uint32_t shared, int rank, int32_t value) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(value) : "memory");
}

// Arrives at the barrier of block `rank`.
__device__ __forceinline__ void ArriveInCluster(uint32_t barrier, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
// A box for both blocks of a pair, at the same place and with the same barrier of their shared
// memory.
__device__ __forceinline__ void CopyBoxToPair(const CUtensorMap& map, int col, int row,
                                              uint32_t shared, uint32_t barrier) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(kBoth)
      : "memory");
}

// What a block has of its queries, at the same place of the shared memory of all blocks.
struct BlockSums {
  const float2* totals;  // [queries] m and l of a state
  const float* sums;     // [queries][stride]
  int stride;
};

// Four columns of a query's state, as each of the cluster's blocks has it.
template <int kBlocks>
struct StateParts {
  float2 totals[kBlocks];
  float4 sums[kBlocks];

  __device__ __forceinline__ void Load(const BlockSums& left, int query, int column) {
    const uint32_t totals_at = SharedAddress(left.totals + query);
    const uint32_t sums_at = SharedAddress(left.sums + query * left.stride + column);
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      totals[r] = LoadPairFromCluster(totals_at, r);
      sums[r] = LoadFromCluster(sums_at, r);
    }
  }
  // Into the first block's.
  __device__ __forceinline__ void Merge() {
    float largest = kMinusInfinity, total = 0;
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) largest = fmaxf(largest, totals[r].x);
    const float base = largest == kMinusInfinity ? 0.0f : largest;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      const float factor = Exp2(totals[r].x - base);
      total += totals[r].y * factor;
      sum.x += sums[r].x * factor;
      sum.y += sums[r].y * factor;
      sum.z += sums[r].z * factor;
      sum.w += sums[r].w * factor;
    }
    totals[0] = {largest, total};
    sums[0] = sum;
  }
};

// Where the merged columns of a query go: its result, or a state where others go with it.
__device__ __forceinline__ void StoreColumns(const AttentionArgs& args, const AttentionItem& item,
                                             const QuerySlot& slot, int query, int column,
                                             float2 totals, float4 sum) {
  if (item.arrivals == 1) {
    const int row = (item.query_begin + query) / args.group;
    const int head = item.kv_head * args.group + (item.query_begin + query) % args.group;
    const float factor = totals.y == 0 ? 0.0f : __fdiv_rn(1.0f, totals.y);
    StoreResult<4>(args.out, row, head * args.head_dim + column,
                   {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor});
    if (head == args.heads() - 1 && column == 0) StorePadding(args.out, row, 0, 1);
  } else if (slot.state >= 0) {
    float* to = args.State(slot.state);
    if (column == 0) *reinterpret_cast<float2*>(to) = totals;
    *reinterpret_cast<float4*>(to + kStateHeader + column) = sum;
  }
}

// Each of the cluster's kBlocks blocks stores some of the columns. Several are read at once, as
// another block's shared memory is far.
template <int kQueries, int kThreads, int kBlocks>
__device__ __forceinline__ void StoreMerged(const AttentionArgs& args, const AttentionItem& item,
                                            const QuerySlot* slots, const BlockSums& left) {
  constexpr int kAtOnce = kMostClusterBlocks / kBlocks < 4 ? kMostClusterBlocks / kBlocks : 4;
  constexpr int kStride = kBlocks * kThreads;
  const int quads = args.head_dim / 4;
  const int count = kQueries * quads;
#pragma unroll 1
  for (int first = RankInCluster() * kThreads + threadIdx.x; first < count;
       first += kAtOnce * kStride) {
    StateParts<kBlocks> parts[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = min(first + u * kStride, count - 1);  // no branch around the loads
      parts[u].Load(left, i / quads, i % quads * 4);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kStride;
      if (i >= count || slots[i / quads].offset < 0) continue;
      parts[u].Merge();
      StoreColumns(args, item, slots[i / quads], i / quads, i % quads * 4, parts[u].totals[0],
                   parts[u].sums[0]);
    }
  }
}
template <int kQueries, int kThreads>
__device__ __forceinline__ void StoreMerged(const AttentionArgs& args, const AttentionItem& item,
                                            const QuerySlot* slots, const BlockSums& left) {
  switch (ClusterSize()) {
    case 1:
      return StoreMerged<kQueries, kThreads, 1>(args, item, slots, left);
    case 2:
      return StoreMerged<kQueries, kThreads, 2>(args, item, slots, left);
    case 4:
      return StoreMerged<kQueries, kThreads, 4>(args, item, slots, left);
    default:
      return StoreMerged<kQueries, kThreads, kMostClusterBlocks>(args, item, slots, left);
  }
}

// The last of the clusters with the same queries merges what all of them left.
template <int kThreads>
__device__ __forceinline__ void MergeIfLastCluster(const AttentionArgs& args,
                                                   const AttentionItem& item, int32_t& is_last) {
  __threadfence();
  SyncCluster();
  if (RankInCluster() == 0 && threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(item.arrivals) - 1;
    const bool all = atomicInc(args.counters + 1 + item.counter, last) == last;
    for (int r = 0; r < ClusterSize(); ++r) StoreToCluster(SharedAddress(&is_last), r, all);
  }
  SyncCluster();
  if (is_last == 0) return;
  __threadfence();
  constexpr int kWarps = kThreads / 32;
  for (int query = item.query_begin + RankInCluster() * kWarps + threadIdx.x / 32;
       query < item.query_end; query += ClusterSize() * kWarps) {
    const int row = query / args.group;
    MergeQuery(args, args.plan.attention_rows[row], row,
               item.kv_head * args.group + query % args.group);
  }
}

// By threads [0, kThreads) of all blocks of a cluster, when each has left its sums. When it
// returns, no block reads another's shared memory any more.
template <int kQueries, int kThreads>
__device__ __forceinline__ void MergeCluster(const AttentionArgs& args, const AttentionItem& item,
                                             const QuerySlot* slots, const BlockSums& left,
                                             int32_t& is_last) {
  SyncCluster();
  StoreMerged<kQueries, kThreads>(args, item, slots, left);
  if (item.arrivals > 1) MergeIfLastCluster<kThreads>(args, item, is_last);
  FenceForEngines();  // the copy engine may write where sums were
  SyncCluster();
}
// By the other threads of these blocks, which the cluster's barriers count, too.
__device__ __forceinline__ void FollowMerge(const AttentionItem& item) {
  const int barriers = item.arrivals > 1 ? 4 : 2;
  for (int i = 0; i < barriers; ++i) SyncCluster();
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_
