// The prefix kernel for few queries on Hopper (attention_work.h): spans only, the same items and
// states as PrefixKernel. Bound by reading keys and values once.
//
// Each warp of a block has its own tiles of 16 keys, a ring in shared memory that it fills by TMA,
// and its own softmax state, so that warps synchronise only at the item's end. There the warps'
// states are merged, then those of the cluster's blocks.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_FEW_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_FEW_CUH_

#include "compute/cuda/attention/cluster.cuh"
#include "compute/cuda/attention/few_fetch.cuh"
#include "compute/cuda/device/dynamic_shared.cuh"

namespace talon::cuda {

// The online softmax of a warp's keys. Rows g (0) and g + 8 (1) of each 16 queries.
template <typename C>
struct FewState {
  float m[C::kTiles][2];  // the maximum that weights are relative to
  float l[C::kTiles][2];  // sum over the thread's own columns
  float acc[C::kTiles][C::kDim / 8][4];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < C::kTiles; ++i) {
      m[i][0] = m[i][1] = kMinusInfinity;
      l[i][0] = l[i][1] = 0;
#pragma unroll
      for (int j = 0; j < C::kDim / 2; ++j) acc[i][j / 4][j % 4] = 0;
    }
  }
  __device__ __forceinline__ float Base(int i, int half) const {
    return m[i][half] == kMinusInfinity ? 0.0f : m[i][half];
  }

  // Turns scores into weights. Rescales the accumulators if a score exceeds m by more than
  // kScoreSlack.
  __device__ __forceinline__ void OnlineSoftmax(float (&s)[C::kTiles][2][4]) {
    float largest[C::kTiles][2];
    bool rises = false;
#pragma unroll
    for (int j = 0; j < 2 * C::kTiles; ++j) {
      const int i = j / 2, half = j % 2;
      float x = fmaxf(fmaxf(s[i][0][2 * half], s[i][0][2 * half + 1]),
                      fmaxf(s[i][1][2 * half], s[i][1][2 * half + 1]));
      x = fmaxf(x, ShuffleXor(x, 1));
      largest[i][half] = fmaxf(x, ShuffleXor(x, 2));
      rises |= largest[i][half] > m[i][half] + kScoreSlack;
    }
    if (__any_sync(0xffffffffu, rises)) Raise(largest);
#pragma unroll
    for (int j = 0; j < 8 * C::kTiles; ++j) {
      const int i = j / 8, half = j % 4 / 2;
      float& x = s[i][j / 4 % 2][j % 4];
      x = Exp2(x - Base(i, half));
      l[i][half] += x;
    }
  }

 private:
  __device__ __forceinline__ void Raise(const float (&largest)[C::kTiles][2]) {
#pragma unroll
    for (int j = 0; j < 2 * C::kTiles; ++j) {
      const int i = j / 2, half = j % 2;
      const float before = m[i][half];
      m[i][half] = fmaxf(before, largest[i][half]);
      const float rescale = Exp2(before - Base(i, half));
      l[i][half] *= rescale;
#pragma unroll
      for (int k = 0; k < C::kDim / 8; ++k) {
        acc[i][k][2 * half] *= rescale;
        acc[i][k][2 * half + 1] *= rescale;
      }
    }
  }
};

// One warp's part of an item.
template <typename C>
class FewComputer {
 public:
  __device__ FewComputer(const AttentionArgs& args, const AttentionItem& item, FewShared<C>& shared)
      : args_(args),
        item_(item),
        shared_(shared),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    state_.Clear();
  }

  // Prefetches the masks of the tile at `first` while its copies are in flight.
  __device__ __forceinline__ void LoadMasks(int first) {
    if (!NeedsMask(first)) return;
    const ItemKeys keys(args_, item_, nullptr);
#pragma unroll
    for (int j = 0; j < 2 * C::kTiles; ++j) {
      masks_[j].Load(keys, shared_.queries[QueryOf(j)], QueryOf(j), first);
    }
  }
  // Accumulates the tile at `first`, which is in `stage`; after LoadMasks.
  __device__ __forceinline__ void AddTile(int first, int stage) {
    float s[C::kTiles][2][4] = {};
    Score(shared_.ring[warp_][stage][0], s);
    if (NeedsMask(first)) ApplyMask(first, s);
    state_.OnlineSoftmax(s);
    AddValues(shared_.ring[warp_][stage][1], s);
  }

  // Stores the warp's state in its part of the ring.
  __device__ __forceinline__ void StoreAccumulators() {
    float* to = shared_.AccumulatorsOf(warp_);
#pragma unroll
    for (int j = 0; j < 2 * C::kTiles; ++j) {
      const int i = j / 2, half = j % 2;
      const int query = QueryOf(j);
      float sum = state_.l[i][half];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      if (lane_ % 4 == 0) shared_.totals[warp_][query] = {state_.m[i][half], sum};
#pragma unroll
      for (int k = 0; k < C::kDim / 8; ++k) {
        *reinterpret_cast<float2*>(to + query * C::kAccStride + k * 8 + lane_ % 4 * 2) = {
            state_.acc[i][k][2 * half], state_.acc[i][k][2 * half + 1]};
      }
    }
  }

 private:
  using T = typename C::T;

  // Query of half j % 2 of tile j / 2 of this lane.
  __device__ int QueryOf(int j) const { return j * 8 + lane_ / 4; }
  __device__ bool NeedsMask(int first) const {
    return first + C::kKeys > min(item_.full_end, item_.key_end);
  }

  __device__ __forceinline__ void Score(const uint8_t* keys, float (&s)[C::kTiles][2][4]) const {
#pragma unroll
    for (int d = 0; d < C::kDim / 8; d += 2) {
      uint32_t b[4];
      LdMatrix(keys + PieceOffset(C::kKeys, lane_ % 8 + lane_ / 16 * 8, d + lane_ / 8 % 2), b);
#pragma unroll
      for (int i = 0; i < C::kTiles; ++i) {
        uint32_t a[4];
        LdMatrix(shared_.q + PieceOffset(C::kQueries, i * 16 + lane_ % 16, d + lane_ / 16), a);
        Mma<T>(s[i][0], a, b[0], b[1]);
        Mma<T>(s[i][1], a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void ApplyMask(int first, float (&s)[C::kTiles][2][4]) const {
#pragma unroll
    for (int j = 0; j < 2 * C::kTiles; ++j) {
      const int i = j / 2, half = j % 2;
      const uint64_t visible =
          masks_[j].Visible(item_, shared_.queries[QueryOf(j)], first, 0) >> (lane_ % 4 * 2);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        if ((visible >> (8 * side) & 1) == 0) s[i][side][2 * half] = kMinusInfinity;
        if ((visible >> (8 * side + 1) & 1) == 0) s[i][side][2 * half + 1] = kMinusInfinity;
      }
    }
  }

  __device__ __forceinline__ void AddValues(const uint8_t* values,
                                            const float (&s)[C::kTiles][2][4]) {
    uint32_t a[C::kTiles][4];
#pragma unroll
    for (int i = 0; i < C::kTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        a[i][r] = PackPair<T>(s[i][r / 2][r % 2 * 2], s[i][r / 2][r % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int d = 0; d < C::kDim / 8; d += 2) {
      uint32_t b[4];
      LdMatrixTransposed(values + PieceOffset(C::kKeys, lane_ % 16, d + lane_ / 16), b);
#pragma unroll
      for (int i = 0; i < C::kTiles; ++i) {
        Mma<T>(state_.acc[i][d], a[i], b[0], b[1]);
        Mma<T>(state_.acc[i][d + 1], a[i], b[2], b[3]);
      }
    }
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  FewShared<C>& shared_;
  int warp_;
  int lane_;
  MaskWindow masks_[2 * C::kTiles];
  FewState<C> state_;
};

// Loads the queries, scaled and rounded to the cache's type.
template <typename C>
__device__ __forceinline__ void LoadFewQueries(const AttentionArgs& args, FewShared<C>& shared) {
  using T = typename C::T;
  constexpr int kPieces = C::kDim / 8;
#pragma unroll
  for (int i = threadIdx.x; i < C::kQueries * kPieces; i += C::kThreads) {
    const int64_t offset = shared.queries[i / kPieces].offset;
    const int piece = i % kPieces;
    float4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
    if (offset >= 0 && piece * 8 < args.head_dim) {
      const auto* from = reinterpret_cast<const float4*>(args.q + offset + piece * 8);
      a = __ldcg(from);
      b = __ldcg(from + 1);
    }
    const float scale = args.scale_log2;
    const uint4 packed = {
        PackPair<T>(a.x * scale, a.y * scale), PackPair<T>(a.z * scale, a.w * scale),
        PackPair<T>(b.x * scale, b.y * scale), PackPair<T>(b.z * scale, b.w * scale)};
    *reinterpret_cast<uint4*>(shared.q + PieceOffset(C::kQueries, i / kPieces, piece)) = packed;
  }
}

// Merges the warps' states and sends the result to the cluster exchange.
template <typename C>
__device__ __forceinline__ void CombineWarps(FewShared<C>& shared,
                                             const ClusterExchange& exchange) {
  constexpr int kQuads = C::kDim / 4;
#pragma unroll
  for (int i = threadIdx.x; i < C::kQueries * kQuads; i += C::kThreads) {
    const int query = i / kQuads;
    const int at = query * C::kAccStride + i % kQuads * 4;
    float largest = kMinusInfinity, total = 0;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) largest = fmaxf(largest, shared.totals[w][query].x);
    const float base = largest == kMinusInfinity ? 0.0f : largest;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      const float2 part = shared.totals[w][query];
      const float factor = Exp2(part.x - base);
      const auto x = *reinterpret_cast<const float4*>(shared.AccumulatorsOf(w) + at);
      total += part.y * factor;
      sum.x += x.x * factor, sum.y += x.y * factor, sum.z += x.z * factor, sum.w += x.w * factor;
    }
    const ExchangeTarget<C::kQueries> to(exchange, query);
    to.SendColumns(i % kQuads * 4, sum);
    if (i % kQuads == 0) StoreDsmem(to.totals, float2{largest, total});
  }
}

template <typename C>
__device__ __forceinline__ void RunFewItem(const AttentionArgs& args, const KvTensorMaps& maps,
                                           bool is_first, FewShared<C>& shared, int& step) {
  const AttentionItem& item = shared.item;
  ClusterArrive();  // this block is running and has read the previous exchange
  FewFetcher<C> fetcher(args, maps, item, shared, step);
  fetcher.StartFirst(item.old_end);
  if (is_first) {
    PdlWait();
    PdlTrigger();
  }
  fetcher.StartFirst(INT32_MAX);
  LoadFewQueries(args, shared);
  __syncthreads();
  FewComputer<C> computer(args, item, shared);
  for (int i = 0; i < fetcher.num_tiles(); ++i) {
    computer.LoadMasks(fetcher.FirstKey(i));
    computer.AddTile(fetcher.FirstKey(i), fetcher.WaitFor(i));
    fetcher.StartAfter(i);
  }
  step += fetcher.num_tiles();
  computer.StoreAccumulators();
  __syncthreads();
  const ClusterExchange exchange = {shared.exchange_totals, shared.exchange_acc, C::kAccStride};
  ClusterWait();
  CombineWarps(shared, exchange);
  MergeCluster<C, C::kThreads>(args, item, shared.queries, exchange);
  if (item.arrivals > 1) MergeIfLastCluster<C::kThreads>(args, item, shared.is_last);
  FenceProxyAsync();  // TMA overwrites the memory of the warps' accumulators
}

// The next kernel reads data of kernels before this one ahead of its own PdlWait, so no block calls
// PdlTrigger before its PdlWait has returned.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    FewQueriesKernel(const __grid_constant__ AttentionArgs args,
                     const __grid_constant__ KvTensorMaps maps) {
#if __CUDA_ARCH__ >= 900
  const uint32_t misaligned = SharedAddress(DynamicShared()) % kPanelAlignment;
  auto& shared = *reinterpret_cast<FewShared<C>*>(static_cast<uint8_t*>(DynamicShared()) +
                                                  (kPanelAlignment - misaligned) % kPanelAlignment);
  const int num_items = *args.plan.num_items;
  AttentionItem item = args.plan.items[blockIdx.x];
  if (static_cast<int>(blockIdx.x) >= num_items) {
    PdlWait();
    PdlTrigger();
    return;
  }
  if (threadIdx.x == 0) shared.InitBarriers();
  int step = 0;  // tiles that this warp has processed
  for (int index = blockIdx.x; index < num_items; index += gridDim.x) {
    if (index >= static_cast<int>(gridDim.x)) {
      item = args.plan.items[index];
      __syncthreads();  // all threads have read the slots of the previous item
    }
    FillSlots<C::kThreads>(args, item, 0, C::kQueries, threadIdx.x, shared.queries);
    if (threadIdx.x == C::kThreads - 1) shared.item = item;
    __syncthreads();
    RunFewItem(args, maps, index == static_cast<int>(blockIdx.x), shared, step);
  }
#endif
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_FEW_CUH_
