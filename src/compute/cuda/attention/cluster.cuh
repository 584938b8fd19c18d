// Reduction over a cluster: its blocks process runs of keys for the same queries and exchange their
// softmax states through distributed shared memory (DSMEM) (attention_work.h).
#ifndef TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_

#include "compute/cuda/attention/boxes.cuh"
#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/merge.cuh"

namespace talon::cuda {

__device__ __forceinline__ int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ int ClusterSize() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}
// DSMEM address, in block `rank`, of what is at `shared` in this block.
__device__ __forceinline__ uint32_t DsmemAddress(uint32_t shared, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}
__device__ __forceinline__ void StoreDsmem(uint32_t remote, int32_t value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(value) : "memory");
}
__device__ __forceinline__ void StoreDsmem(uint32_t remote, float2 x) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote), "f"(x.x), "f"(x.y)
               : "memory");
}
__device__ __forceinline__ void StoreDsmem(uint32_t remote, float4 x) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "f"(x.x),
               "f"(x.y), "f"(x.z), "f"(x.w)
               : "memory");
}

// Arrives at the mbarrier of block `rank`.
__device__ __forceinline__ void MbarrierArriveRemote(uint32_t barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(DsmemAddress(barrier, rank))
               : "memory");
}
// TMA multicast: loads a box into both blocks of a pair, at the same offset and with the same
// mbarrier of their shared memory.
__device__ __forceinline__ void TmaLoadBoxMulticast(const CUtensorMap& map, int col, int row,
                                                    uint32_t shared, uint32_t barrier) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(col), "r"(row), "r"(barrier), "h"(kBoth)
      : "memory");
}

// Exchange buffer in DSMEM, at the same address in all blocks of a cluster: each block receives all
// blocks' states of its share of the queries and reduces them.
struct ClusterExchange {
  float2* totals;  // [blocks][share], m and l of a state
  float* acc;      // [blocks][share][stride], accumulators
  int stride;
};

// DSMEM addresses in the block that reduces `query`, to which this block sends its state of it.
template <int kQueries>
struct ExchangeTarget {
  uint32_t totals;
  uint32_t acc;

  __device__ __forceinline__ ExchangeTarget(const ClusterExchange& exchange, int query) {
    const int share = kQueries / ClusterSize();
    const int at = ClusterRank() * share + query % share;
    totals = DsmemAddress(SharedAddress(exchange.totals + at), query / share);
    acc = DsmemAddress(SharedAddress(exchange.acc + at * exchange.stride), query / share);
  }
  __device__ __forceinline__ void SendColumns(int column, float4 x) const {
    StoreDsmem(acc + column * static_cast<uint32_t>(sizeof(float)), x);
  }
};

// Four columns of a query's state from each block of the cluster.
template <int kBlocks>
struct StateParts {
  float2 totals[kBlocks];
  float4 acc[kBlocks];

  // `query` is an index within the block's share.
  __device__ __forceinline__ void Load(const ClusterExchange& exchange, int share, int query,
                                       int column) {
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      const int at = r * share + query;
      totals[r] = exchange.totals[at];
      acc[r] = *reinterpret_cast<const float4*>(exchange.acc + at * exchange.stride + column);
    }
  }
  // Merges all states into element 0.
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
      sum.x += acc[r].x * factor;
      sum.y += acc[r].y * factor;
      sum.z += acc[r].z * factor;
      sum.w += acc[r].w * factor;
    }
    totals[0] = {largest, total};
    acc[0] = sum;
  }
};

// Stores the merged columns of a query: the result, or a partial if other clusters have partials of
// it.
__device__ __forceinline__ void StoreColumns(const AttentionArgs& args, const AttentionItem& item,
                                             const QuerySlot& slot, int column, float2 totals,
                                             float4 sum) {
  if (item.arrivals == 1) {
    const float factor = totals.y == 0 ? 0.0f : __fdividef(1.0f, totals.y);
    StoreResultAt<4>(args.out, slot.out + column,
                     {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor});
  } else if (slot.state >= 0) {
    float* to = args.State(slot.state);
    if (column == 0) *reinterpret_cast<float2*>(to) = totals;
    *reinterpret_cast<float4*>(to + kStateHeader + column) = sum;
  }
}

// Stores zeros after the results of the rows whose last head is among an item's queries.
template <int kThreads>
__device__ __forceinline__ void StorePaddings(const AttentionArgs& args,
                                              const AttentionItem& item) {
  if (item.arrivals != 1 || item.kv_head != args.kv_heads - 1) return;
  if (args.out.padded_cols == args.out.cols || ClusterRank() != 0) return;
  const int last = args.group - 1;  // last query of a row
  for (int row = (item.query_begin + last) / args.group; row * args.group + last < item.query_end;
       ++row) {
    StorePadding(args.out, row, threadIdx.x, kThreads);
  }
}

// Reduces and stores this block's share of the cluster's queries. Each thread loads and merges
// several columns at a time, because too few warps are resident to hide the latency.
template <typename C, int kThreads, int kBlocks>
__device__ __forceinline__ void StoreMerged(const AttentionArgs& args, const AttentionItem& item,
                                            const QuerySlot* slots,
                                            const ClusterExchange& exchange) {
  constexpr int kAtOnce = kMostClusterBlocks / kBlocks < 4 ? kMostClusterBlocks / kBlocks : 4;
  constexpr int kShare = C::kQueries / kBlocks;
  constexpr int kQuads = C::kDim / 4;
  constexpr int kCount = kShare * kQuads;
  slots += ClusterRank() * kShare;
#pragma unroll 1
  for (int first = threadIdx.x; first < kCount; first += kAtOnce * kThreads) {
    StateParts<kBlocks> parts[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = min(first + u * kThreads, kCount - 1);  // no branch around the loads
      parts[u].Load(exchange, kShare, i / kQuads, i % kQuads * 4);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) parts[u].Merge();
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kThreads;
      const int column = i % kQuads * 4;
      if (i >= kCount || slots[i / kQuads].offset < 0 || column >= args.head_dim) continue;
      StoreColumns(args, item, slots[i / kQuads], column, parts[u].totals[0], parts[u].acc[0]);
    }
  }
  StorePaddings<kThreads>(args, item);
}

// Runs in threads [0, kThreads) of all blocks of a cluster, after each has sent its states.
template <typename C, int kThreads>
__device__ __forceinline__ void MergeCluster(const AttentionArgs& args, const AttentionItem& item,
                                             const QuerySlot* slots,
                                             const ClusterExchange& exchange) {
  ClusterSync();
  switch (ClusterSize()) {
    case 1:
      return StoreMerged<C, kThreads, 1>(args, item, slots, exchange);
    case 2:
      return StoreMerged<C, kThreads, 2>(args, item, slots, exchange);
    case 4:
      return StoreMerged<C, kThreads, 4>(args, item, slots, exchange);
    default:
      return StoreMerged<C, kThreads, kMostClusterBlocks>(args, item, slots, exchange);
  }
}

// The last cluster to finish among those with the same queries merges their partials.
template <int kThreads>
__device__ __forceinline__ void MergeIfLastCluster(const AttentionArgs& args,
                                                   const AttentionItem& item, int32_t& is_last) {
  __threadfence();
  ClusterSync();
  if (ClusterRank() == 0 && threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(item.arrivals) - 1;
    const bool all = atomicInc(args.counters + 1 + item.counter, last) == last;
    for (int r = 0; r < ClusterSize(); ++r) {
      StoreDsmem(DsmemAddress(SharedAddress(&is_last), r), all ? 1 : 0);
    }
  }
  ClusterSync();
  if (is_last == 0) return;
  __threadfence();
  constexpr int kWarps = kThreads / 32;
  for (int query = item.query_begin + ClusterRank() * kWarps + threadIdx.x / 32;
       query < item.query_end; query += ClusterSize() * kWarps) {
    const int row = query / args.group;
    MergeQuery(args, args.plan.attention_rows[row], row,
               item.kv_head * args.group + query % args.group);
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_CLUSTER_CUH_
