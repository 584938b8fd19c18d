// The prefix kernel for many queries with Hopper's wgmma (attention_work.h): spans only, the same
// items and states as PrefixKernel.
//
// Warp-specialised: the last warpgroup of a block is the producer and loads keys and values,
// kStepKeys keys per step; each consumer warpgroup computes 64 queries: scores from shared memory,
// weights in registers, then the accumulation of weighted values, which overlaps the softmax of the
// next step. Two consumer warpgroups run in ping-pong: one's wgmmas overlap the other's softmax.
// The mbarrier `full` of a stage completes when its copies have arrived, `empty` when all consumer
// warps have read it.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_

#include "compute/cuda/attention/cluster.cuh"
#include "compute/cuda/attention/warpgroup_fetch.cuh"
#include "compute/cuda/attention/warpgroup_state.cuh"
#include "compute/cuda/device/dynamic_shared.cuh"

namespace talon::cuda {

static_assert(kStepKeys <= MaskWindow::kMostKeys);

// Called before every item but the block's first: the exchange of the previous item may use the
// memory of the keys.
template <typename C>
__device__ __forceinline__ void SyncBeforeItem(const AttentionItem& item) {
  if (!StoresPartials<C>(item)) NamedBarrierSync(C::kBlockBarrier, C::kThreads);
}

// Merges an item over the cluster after the block has sent its states. Called by C::kMergeThreads
// threads.
template <typename C>
__device__ __forceinline__ void MergeItem(const AttentionArgs& args, const AttentionItem& item,
                                          WarpgroupShared<C>& shared) {
  MergeCluster<C, C::kMergeThreads>(args, item, shared.queries, shared.exchange());
  FenceProxyAsync();  // TMA overwrites the memory of the exchange
}

// The consumer: computes the items for one group of 64 queries.
template <typename C>
class GroupComputer {
 public:
  __device__ GroupComputer(const AttentionArgs& args, WarpgroupShared<C>& shared)
      : args_(args), shared_(shared), group_(threadIdx.x / 128), thread_(threadIdx.x % 128) {
    if (C::kGroups > 1 && group_ == 1) PingPongSignal();
  }

  // `is_first`: the block's first item, which is prepared before PdlWait.
  __device__ __forceinline__ void RunItem(const AttentionItem& item, bool is_first) {
    if (!is_first) SyncBeforeItem<C>(item);
    SyncGroup();  // the slots of the previous item have been read
    FillSlots<128>(args_, item, group_ * 64, group_ * 64 + 64, thread_, shared_.queries);
    SyncGroup();
    if (is_first) {
      PdlWait();
      PdlTrigger();
    }
    LoadQueries();
    AddSteps(item);
    if (StoresPartials<C>(item)) return Store();
    ClusterWait();
    Send(shared_.exchange());
    MergeItem<C>(args_, item, shared_);
  }

 private:
  using T = typename C::T;

  __device__ __forceinline__ void SyncGroup() { NamedBarrierSync(C::kGroupBarrier + group_, 128); }
  __device__ __forceinline__ void PingPongWait() {
    if constexpr (C::kGroups > 1) NamedBarrierSync(C::kPingPongBarrier + group_, 256);
  }
  __device__ __forceinline__ void PingPongSignal() {
    static_assert(C::kGroups <= 2);
    if constexpr (C::kGroups > 1) NamedBarrierArrive(C::kPingPongBarrier + (group_ ^ 1), 256);
  }

  __device__ __forceinline__ void AddSteps(const AttentionItem& item) {
    float rescale[2];
    state_.Clear();
#pragma unroll
    for (int i = 0; i < kStepScores; ++i) s_[i] = 0;  // ends the old scores' live range
    if (item.key_end <= item.key_begin) return ArriveKeysRead(item);
    if constexpr (C::kPrefetchesMasks) LoadMasks(item, item.key_begin);
    shared_.keys.WaitFull(step_);
    StartScores();
    WgmmaWaitGroup<0>();
    FinishScores(item, item.key_begin);
    state_.OnlineSoftmax(s_, rescale);
    Pack();
    for (int first = item.key_begin + kStepKeys; first < item.key_end; first += kStepKeys) {
      ++step_;
      if constexpr (C::kPrefetchesMasks) LoadMasks(item, first);
      shared_.keys.WaitFull(step_);
      PingPongWait();
      StartScores();
      StartValues(step_ - 1);
      PingPongSignal();
      WgmmaWaitGroup<1>();
      FinishScores(item, first);
      const bool moves = state_.OnlineSoftmax(s_, rescale);
      PinAccumulators(s_);  // keeps the softmax ahead of the wait for the values' wgmmas
      FinishValues(step_ - 1);
      if (moves) state_.Rescale(rescale);
      Pack();
    }
    ArriveKeysRead(item);
    StartValues(step_);
    FinishValues(step_);
    ++step_;
  }

  // Signals that this block has read its keys, so that others may send states to their memory.
  __device__ __forceinline__ void ArriveKeysRead(const AttentionItem& item) const {
    if (!StoresPartials<C>(item)) ClusterArrive();
  }

  // Loads the queries, scaled and rounded to the cache's type.
  __device__ __forceinline__ void LoadQueries() {
    constexpr int kPieces = C::kDim / 8;
#pragma unroll 8
    for (int i = thread_; i < 64 * kPieces; i += 128) {
      const int query = group_ * 64 + i / kPieces;
      const int piece = i % kPieces;
      const int64_t offset = shared_.queries[query].offset;
      float4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
      if (offset >= 0 && piece * 8 < args_.head_dim) {
        const auto* from = reinterpret_cast<const float4*>(args_.q + offset + piece * 8);
        a = __ldcg(from);
        b = __ldcg(from + 1);
      }
      const float scale = args_.scale_log2;
      const uint4 packed = {
          PackPair<T>(a.x * scale, a.y * scale), PackPair<T>(a.z * scale, a.w * scale),
          PackPair<T>(b.x * scale, b.y * scale), PackPair<T>(b.z * scale, b.w * scale)};
      *reinterpret_cast<uint4*>(shared_.q + PieceOffset(C::kQueries, query, piece)) = packed;
    }
    FenceProxyAsync();
    SyncGroup();
  }

  __device__ __forceinline__ void StartScores() {
    WgmmaFence();
    const uint32_t q = SharedAddress(shared_.q) + group_ * 64 * kPanelRowBytes;
    const uint32_t k = SharedAddress(shared_.k[step_ % C::kStages]);
#pragma unroll
    for (int d = 0; d < C::kDim; d += 16) {
      const int matrix = d / kPanelCols;
      const uint32_t within = d % kPanelCols * 2;
      MultiplyKeys<T>(s_, RowDescriptor(q + matrix * C::kQueries * kPanelRowBytes + within),
                      RowDescriptor(k + matrix * C::kMatrixBytes + within), d > 0);
    }
    WgmmaCommitGroup();
  }

  // `first` is the step's first key.
  __device__ __forceinline__ void FinishScores(const AttentionItem& item, int first) {
    PinAccumulators(s_);
    shared_.keys.Release(step_);
    if (!NeedsMask(item, first)) return;
    if constexpr (!C::kPrefetchesMasks) LoadMasks(item, first);
    ApplyMask(item, first);
  }

  __device__ __forceinline__ static bool NeedsMask(const AttentionItem& item, int first) {
    return first + kStepKeys > min(item.full_end, item.key_end);
  }
  __device__ __forceinline__ int QueryOf(int half) const {
    return group_ * 64 + AccumulatorQuery(thread_, 2 * half);
  }
  // Loads the masks of the step at `first`, if possible before its keys have arrived.
  __device__ __forceinline__ void LoadMasks(const AttentionItem& item, int first) {
    if (!NeedsMask(item, first)) return;
    const ItemKeys keys(args_, item, nullptr);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      masks_[half].Load(keys, shared_.queries[QueryOf(half)], QueryOf(half), first);
    }
  }
  __device__ __forceinline__ void ApplyMask(const AttentionItem& item, int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QuerySlot& slot = shared_.queries[QueryOf(half)];
#pragma unroll
      for (int begin = 0; begin < kStepKeys; begin += kTileKeys) {
        const uint64_t visible =
            masks_[half].Visible(item, slot, first, begin / kTileKeys) >> (thread_ % 4 * 2);
#pragma unroll
        for (int key = 0; key < min(kTileKeys, kStepKeys - begin); key += 8) {
          float* pair = &s_[(begin + key) / 2 + 2 * half];
          if ((visible >> key & 1) == 0) pair[0] = kMinusInfinity;
          if ((visible >> (key + 1) & 1) == 0) pair[1] = kMinusInfinity;
        }
      }
    }
  }

  __device__ __forceinline__ void Pack() {
#pragma unroll
    for (int i = 0; i < kStepScores / 2; ++i) {
      weights_[i] = PackPair<T>(s_[2 * i], s_[2 * i + 1]);
    }
  }

  __device__ __forceinline__ void StartValues(int step) {
    shared_.values.WaitFull(step);
    WgmmaFence();
    const uint32_t v = SharedAddress(shared_.v[step % C::kStages]);
#pragma unroll
    for (int k = 0; k < kStepKeys / 16; ++k) {
      MultiplyValues<T>(state_.acc, weights_ + 4 * k,
                        ColumnDescriptor(v + k * 16 * kPanelRowBytes, C::kMatrixBytes));
    }
    WgmmaCommitGroup();
  }
  __device__ __forceinline__ void FinishValues(int step) {
    WgmmaWaitGroup<0>();
    PinAccumulators(state_.acc);
    shared_.values.Release(step);
  }

  // Calls f(query, m, l, half) for both of the thread's queries.
  template <typename F>
  __device__ __forceinline__ void ForQueries(const F& f) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state_.l[half];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      f(QueryOf(half), float2{state_.m[half], sum}, half);
    }
  }
  __device__ __forceinline__ float2 PairOf(int j, int half) const {
    return {state_.acc[4 * j + 2 * half], state_.acc[4 * j + 2 * half + 1]};
  }

  // Sends the states to the cluster exchange. Two neighbouring threads hold two columns each of two
  // groups of eight: they swap, so that each has four consecutive ones.
  __device__ __forceinline__ void Send(const ClusterExchange& exchange) const {
    const bool odd = thread_ % 2 != 0;
    ForQueries([&](int query, float2 totals, int half) {
      const ExchangeTarget<C::kQueries> to(exchange, query);
      if (thread_ % 4 == 0) StoreDsmem(to.totals, totals);
#pragma unroll
      for (int j = 0; j < C::kDim / 8; j += 2) {
        const float2 first = PairOf(j, half), second = PairOf(j + 1, half);
        const float2 kept = odd ? second : first;
        const float2 given = odd ? first : second;
        const float2 got = {ShuffleXor(given.x, 1), ShuffleXor(given.y, 1)};
        const int column = AccumulatorColumn(thread_ & ~1, 4 * (odd ? j + 1 : j));
        to.SendColumns(column, odd ? float4{got.x, got.y, kept.x, kept.y}
                                   : float4{kept.x, kept.y, got.x, got.y});
      }
    });
  }
  // Stores the states as partials.
  __device__ __forceinline__ void Store() const {
    ForQueries([&](int query, float2 totals, int half) {
      const int index = shared_.queries[query].state;
      if (index < 0) return;
      float* to = args_.State(index);
      if (thread_ % 4 == 0) *reinterpret_cast<float2*>(to) = totals;
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        const int column = AccumulatorColumn(thread_, 4 * j);
        if (column >= args_.head_dim) continue;
        *reinterpret_cast<float2*>(to + kStateHeader + column) = PairOf(j, half);
      }
    });
  }

  const AttentionArgs& args_;
  WarpgroupShared<C>& shared_;
  int group_;
  int thread_;    // within the group
  int step_ = 0;  // counted over all items
  float s_[kStepScores];
  uint32_t weights_[kStepScores / 2];
  MaskWindow masks_[2];
  GroupState<C> state_;
};

// Calls run(item, is_first) for the block's items. Every thread reads them itself, without
// communication, so that the producer runs ahead of the consumers.
template <typename Run>
__device__ __forceinline__ void ForItems(const AttentionArgs& args, int num_items, const Run& run) {
  for (int i = blockIdx.x; i < num_items; i += gridDim.x) {
    run(args.plan.items[i], i == blockIdx.x);
  }
}

template <typename C>
__device__ __forceinline__ void Fetch(const AttentionArgs& args, const Operand<C>& operand,
                                      int warp, int num_items, WarpgroupShared<C>& shared) {
  Fetcher<C> fetcher(args, operand, warp);
  ForItems(args, num_items, [&](const AttentionItem& item, bool is_first) {
    if (!is_first) SyncBeforeItem<C>(item);
    fetcher.RunItem(item);
    if (StoresPartials<C>(item)) return;
    ClusterSync();  // all blocks have read their keys
    if constexpr (C::kMergeThreads == C::kThreads) {
      MergeItem<C>(args, item, shared);
    } else {
      ClusterSync();  // all states are sent
    }
  });
}

// The producer warps: two for keys, two for values.
template <typename C>
__device__ __forceinline__ void FetchBoth(const AttentionArgs& args, const KvTensorMaps& maps,
                                          int num_items, WarpgroupShared<C>& shared) {
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  if (warp < kFetchWarps) {
    Fetch<C>(args,
             {maps.exist ? &maps.keys : nullptr, args.k_blocks, args.k_staged, shared.keys,
              shared.k, shared.vectors[0]},
             warp, num_items, shared);
  } else {
    Fetch<C>(args,
             {maps.exist ? &maps.values : nullptr, args.v_blocks, args.v_staged, shared.values,
              shared.v, shared.vectors[1]},
             warp - kFetchWarps, num_items, shared);
  }
}

// The next kernel reads data of kernels before this one ahead of its own PdlWait, so no block calls
// PdlTrigger before its PdlWait has returned.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    WarpgroupKernel(const __grid_constant__ AttentionArgs args,
                    const __grid_constant__ KvTensorMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint32_t misaligned = SharedAddress(DynamicShared()) % kPanelAlignment;
  auto& shared = *reinterpret_cast<WarpgroupShared<C>*>(
      static_cast<uint8_t*>(DynamicShared()) + (kPanelAlignment - misaligned) % kPanelAlignment);
  const int num_items = *args.plan.num_items;
  if (blockIdx.x >= num_items) {
    PdlWait();
    PdlTrigger();
    return;
  }
  if (threadIdx.x == 0) {
    shared.keys.Init();
    shared.values.Init();
    FenceMbarrierInit();
  }
  if constexpr (C::kPair) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == C::kGroups) {
    if constexpr (C::kGroups > 1) SetMaxNRegDec<40>();
    FetchBoth<C>(args, maps, num_items, shared);
  } else {
    if constexpr (C::kGroups > 1) SetMaxNRegInc<232>();
    GroupComputer<C> computer(args, shared);
    ForItems(args, num_items,
             [&](const AttentionItem& item, bool is_first) { computer.RunItem(item, is_first); });
  }
  if constexpr (C::kPair) ClusterSync();  // the other block may still arrive here
#endif
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
