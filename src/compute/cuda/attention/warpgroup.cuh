// The prefix kernel for many queries with Hopper's wgmma (attention_work.h): the same items, states
// and bits as PrefixKernel.
//
// Warp-specialised: the producers, the last warpgroups of a block, load keys and values, kStepKeys
// keys per step, which are two tiles; half of their warps load keys, half values, so that neither
// waits for the other's stages. Each consumer warpgroup computes 64 queries: scores from shared
// memory, weights in registers, then the accumulation of weighted values, which overlaps the
// softmax of the next step. Two consumer warpgroups run in ping-pong: one's wgmmas overlap the
// other's softmax. The mbarrier `full` of a stage completes when its copies have arrived, `empty`
// when all consumer warps have read it.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_

#include "compute/cuda/attention/warpgroup_expand.cuh"
#include "compute/cuda/attention/warpgroup_fetch.cuh"
#include "compute/cuda/attention/warpgroup_mma.cuh"
#include "compute/cuda/attention/warpgroup_shared.cuh"
#include "compute/cuda/attention/warpgroup_state.cuh"
#include "compute/cuda/device/dynamic_shared.cuh"

namespace talon::cuda {

static_assert(kStepKeys == 2 * kTileKeys);
static_assert(kFirstChunkKeys % kStepKeys == 0, "chunks are whole steps");

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
    SyncGroup();  // the slots of the previous item have been read
    FillSlots<128>(args_, item, group_ * 64, group_ * 64 + 64, thread_, shared_.queries);
    SyncGroup();
    const int slot = group_ * 64 + thread_ / 32 * 16 + thread_ % 16;
    has_queries_ = __any_sync(0xffffffffu, shared_.queries[slot].offset >= 0);
    if (is_first) {
      PdlWait();
      PdlTrigger();
    }
    LoadQueries();
    AddSteps(item);
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

  // Steps follow each other in a pipeline, also from chunk to chunk: the values of one are
  // accumulated while the next one's scores become weights.
  __device__ __forceinline__ void AddSteps(const AttentionItem& item) {
    PartialTotals totals[2];
    int chunk = item.chunk;
    int chunk_end = ChunkBegin(chunk + 1);
    state_.totals.Clear();
    is_fresh_ = true;
#pragma unroll
    for (int i = 0; i < kStepScores; ++i) s_[i] = 0;  // ends the old scores' live range
    shared_.keys.WaitFull(step_);
    StartScores();
    WgmmaWaitGroup<0>();
    FinishScores(item, item.key_begin);
    Softmax();
    FinishWeights();
    for (int first = item.key_begin + kStepKeys; first < item.key_end; first += kStepKeys) {
      ++step_;
      shared_.keys.WaitFull(step_);
      PingPongWait();
      StartScores();
      StartValues(step_ - 1);
      PingPongSignal();
      WgmmaWaitGroup<1>();
      FinishScores(item, first);
      const bool ends_chunk = first == chunk_end;
      const ChunkTotals done = state_.totals;
      if (ends_chunk) state_.totals.Clear();
      const Rescaling rescaling = Softmax();
      PinAccumulators(s_);  // keeps the softmax ahead of the wait for the values' wgmmas
      FinishValues(step_ - 1);
      if (ends_chunk) {
        FinishChunk(ChunkTarget(args_, item, chunk++), done, totals);
        chunk_end = ChunkBegin(chunk + 1);
        is_fresh_ = true;
      } else if (rescaling.moves) {
        state_.Rescale(rescaling);
      }
      FinishWeights();
    }
    StartValues(step_);
    FinishValues(step_);
    ++step_;
    ChunkTarget last(args_, item, chunk);
    last.is_last = true;
    FinishChunk(last, state_.totals, totals);
  }

  // Turns the scores of a step into weights. Returns the rescaling before its first tile; the one
  // between its tiles is left to FinishWeights. A warp without queries leaves its time to others.
  __device__ __forceinline__ Rescaling Softmax() {
    Rescaling rescaling = {};
    between_ = {};
    if (has_queries_) {
      rescaling = state_.template OnlineSoftmax<0>(s_);
      between_ = state_.template OnlineSoftmax<1>(s_);
    }
    rescales_between_ = NamedBarrierAny(C::kGroupBarrier + group_, 128, between_.moves);
    return rescaling;
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
    if (first + kStepKeys > min(item.full_end, item.key_end)) HideKeys(first);
  }

  __device__ __forceinline__ int QueryOf(int half) const {
    return group_ * 64 + AccumulatorQuery(thread_, 2 * half);
  }
  // Hides the keys of the step at `first` that are beyond the queries' limits.
  __device__ __forceinline__ void HideKeys(int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int visible = shared_.queries[QueryOf(half)].limit - first - thread_ % 4 * 2;
#pragma unroll
      for (int key = 0; key < kStepKeys; key += 8) {
        float* pair = &s_[key / 2 + 2 * half];
        if (key >= visible) pair[0] = kMinusInfinity;
        if (key + 1 >= visible) pair[1] = kMinusInfinity;
      }
    }
  }

  __device__ __forceinline__ void FinishWeights() {
#pragma unroll
    for (int i = 0; i < kStepScores / 2; ++i) {
      weights_[i] = PackPair<T>(s_[2 * i], s_[2 * i + 1]);
    }
    if (rescales_between_) RescaleBetween();  // uniform in the group, as wgmma needs
  }
  // Where the second tile of a step moves the maximum, which is rare, the first is accumulated here
  // and rescaled; its weights become zeros, so that it adds nothing once more.
  __device__ __forceinline__ void RescaleBetween() {
    shared_.values.WaitFull(step_);
    WgmmaFence();
    MultiplyTile<0>(step_);
    WgmmaCommitGroup();
    WgmmaWaitGroup<0>();
    PinAccumulators(state_.acc);
    state_.Rescale(between_);
#pragma unroll
    for (int i = 0; i < kTileScores / 2; ++i) weights_[i] = 0;
  }

  __device__ __forceinline__ void StartValues(int step) {
    shared_.values.WaitFull(step);
    WgmmaFence();
    MultiplyTile<0>(step);
    MultiplyTile<1>(step);
    WgmmaCommitGroup();
  }
  template <int Tile>
  __device__ __forceinline__ void MultiplyTile(int step) {
    const uint32_t v = SharedAddress(shared_.v[step % C::kStages]);
#pragma unroll
    for (int k = Tile * kTileKeys / 16; k < (Tile + 1) * kTileKeys / 16; ++k) {
      MultiplyValues<T>(state_.acc, weights_ + 4 * k,
                        ColumnDescriptor(v + k * 16 * kPanelRowBytes, C::kMatrixBytes),
                        k % (kTileKeys / 16) > 0 || !is_fresh_);
    }
    is_fresh_ = false;
  }
  __device__ __forceinline__ void FinishValues(int step) {
    WgmmaWaitGroup<0>();
    PinAccumulators(state_.acc);
    shared_.values.Release(step);
  }

  // `done`: its maxima and sums.
  __device__ __forceinline__ void FinishChunk(const ChunkTarget& target, const ChunkTotals& done,
                                              PartialTotals (&totals)[2]) {
    const MergeFactors factors[2] = {totals[0].Add(done.m[0], done.l[0], target.is_first),
                                     totals[1].Add(done.m[1], done.l[1], target.is_first)};
    if constexpr (C::kKeepsSections) {
      MergeChunk(target, totals, factors);
    } else {
      MergeChunkInMemory(target, totals, factors);
    }
  }

  // Merges a finished chunk into the accumulators of its section, and stores them when that is
  // complete.
  __device__ __forceinline__ void MergeChunk(const ChunkTarget& target,
                                             const PartialTotals (&totals)[2],
                                             const MergeFactors (&factors)[2]) {
    float* to[2] = {};
    if (target.is_last) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to[half] = target.StateOf(args_, shared_.queries[QueryOf(half)]);
        if (to[half] == nullptr || thread_ % 4 != 0) continue;
        *reinterpret_cast<float2*>(to[half]) = {totals[half].m, totals[half].l};
      }
    }
#pragma unroll
    for (int j = 0; j < C::kDim / 8; ++j) {
      float4 sum = {state_.acc[4 * j], state_.acc[4 * j + 1], state_.acc[4 * j + 2],
                    state_.acc[4 * j + 3]};
      float4& kept = j == 0 ? kept_ : shared_.kept[j - 1][threadIdx.x];
      if (!target.is_first) {
        const float4 before = kept;
        sum = {factors[0].Merge(before.x, sum.x), factors[0].Merge(before.y, sum.y),
               factors[1].Merge(before.z, sum.z), factors[1].Merge(before.w, sum.w)};
      }
      if (!target.is_last) {
        kept = sum;
        continue;
      }
      const int column = AccumulatorColumn(thread_, 4 * j);
      if (column >= args_.head_dim) continue;
      const float2 pairs[2] = {{sum.x, sum.y}, {sum.z, sum.w}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (to[half] == nullptr) continue;
        *reinterpret_cast<float2*>(to[half] + kStateHeader + column) = pairs[half];
      }
    }
  }

  // The same where shared memory has no room: the section's partial is read and written again.
  __device__ __forceinline__ void MergeChunkInMemory(const ChunkTarget& target,
                                                     const PartialTotals (&totals)[2],
                                                     const MergeFactors (&factors)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* to = target.StateOf(args_, shared_.queries[QueryOf(half)]);
      if (to == nullptr) continue;
      if (thread_ % 4 == 0) *reinterpret_cast<float2*>(to) = {totals[half].m, totals[half].l};
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        const int column = AccumulatorColumn(thread_, 4 * j);
        if (column >= args_.head_dim) continue;
        MergeColumns(to + kStateHeader + column,
                     {state_.acc[4 * j + 2 * half], state_.acc[4 * j + 2 * half + 1]},
                     target.is_first, factors[half]);
      }
    }
  }

  const AttentionArgs& args_;
  WarpgroupShared<C>& shared_;
  int group_;
  int thread_;               // within the group
  int step_ = 0;             // counted over all items
  bool has_queries_ = true;  // the warp
  float s_[kStepScores];
  uint32_t weights_[kStepScores / 2];
  GroupState<C> state_;
  bool is_fresh_ = true;           // nothing of the chunk is accumulated yet
  float4 kept_;                    // its section's first accumulators, beside WarpgroupShared::kept
  Rescaling between_;              // between the tiles of the last step
  bool rescales_between_ = false;  // in any warp of the group
};

// Calls run(item, is_first) for the block's items. Every thread reads them itself, without
// communication, so that the producer runs ahead of the consumers.
template <typename Run>
__device__ __forceinline__ void ForItems(const AttentionArgs& args, const Run& run) {
  for (int i = blockIdx.x; i >= 0;) {
    const AttentionItem item = args.plan.items[i];
    run(item, i == blockIdx.x);
    i = item.next;
  }
}

// The producer warps: half of them for keys, half for values, in the same code.
template <typename C>
__device__ __forceinline__ void Fetch(const AttentionArgs& args, const KvTensorMaps& maps,
                                      WarpgroupShared<C>& shared) {
  const int first = 4 * C::kGroups;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32 - first, 0);
  const bool has_keys = warp < C::kFetchWarps;
  const CUtensorMap* map = has_keys ? &maps.keys : &maps.values;
  const Operand<C> operand = {maps.exist ? map : nullptr,
                              has_keys ? args.k_blocks : args.v_blocks,
                              has_keys ? args.k_staged : args.v_staged,
                              has_keys ? shared.keys : shared.values,
                              has_keys ? shared.k : shared.v,
                              shared.vectors[has_keys ? 0 : 1]};
  if constexpr (C::kExpands) {
    CodeExpander<C>(args, operand, warp % C::kFetchWarps).Run();
  } else {
    Fetcher<C> fetcher(args, operand, warp % C::kFetchWarps);
    ForItems(args, [&](const AttentionItem& item, bool is_first) { fetcher.RunItem(item); });
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
  if (blockIdx.x >= *args.plan.num_items) {
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
  if (group >= C::kGroups) {
    if constexpr (C::kMovesRegisters) SetMaxNRegDec<C::kProducerRegisters>();
    Fetch<C>(args, maps, shared);
  } else {
    if constexpr (C::kMovesRegisters) SetMaxNRegInc<C::kConsumerRegisters>();
    GroupComputer<C> computer(args, shared);
    ForItems(args,
             [&](const AttentionItem& item, bool is_first) { computer.RunItem(item, is_first); });
  }
  if constexpr (C::kPair) ClusterSync();  // the other block may still arrive here
#endif
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
