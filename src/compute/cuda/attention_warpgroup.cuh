// The prefix kernel for many queries on Hopper's tensor cores (attention_work.h): spans only, the
// same items and states as PrefixKernel.
//
// The last warpgroup of a block fetches keys and values, 128 keys a step; each of the others
// computes 64 queries: scores from shared memory, weights in registers, then the sum of values by
// weight, which runs while the next step's scores become weights. `full` of a stage says that its
// copies are there, `empty` that all warps have read it.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_

#include "compute/cuda/attention_warpgroup_fetch.cuh"
#include "compute/cuda/dynamic_shared.cuh"

namespace talon::cuda {

// The running softmax of 64 queries in a warpgroup's registers; rows g (0) and g + 8 (1) of each
// warp's 16 queries.
template <typename C>
struct GroupState {
  float m[2];
  float l[2];  // of the thread's own columns
  float acc[C::kDim / 2];

  __device__ __forceinline__ void Clear() {
    m[0] = m[1] = kMinusInfinity;
    l[0] = l[1] = 0;
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) acc[i] = 0;
  }

  // Turns scores into weights. `rescale` is what the sums so far must be multiplied with.
  __device__ __forceinline__ void Weigh(float (&s)[64], float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = m[half];
#pragma unroll
      for (int j = 2 * half; j < 64; j += 4) largest = fmaxf(largest, fmaxf(s[j], s[j + 1]));
      largest = fmaxf(largest, ShuffleXor(largest, 1));
      largest = fmaxf(largest, ShuffleXor(largest, 2));
      const float base = largest == kMinusInfinity ? 0.0f : largest;
      rescale[half] = Exp2(m[half] - base);
      m[half] = largest;
      float sum = 0;
#pragma unroll
      for (int j = 2 * half; j < 64; j += 4) {
        s[j] = Exp2(s[j] - base);
        s[j + 1] = Exp2(s[j + 1] - base);
        sum += s[j] + s[j + 1];
      }
      l[half] = l[half] * rescale[half] + sum;
    }
  }
  __device__ __forceinline__ void Rescale(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) acc[i] *= rescale[i / 2 % 2];
  }
};

// Computes the items for one group of 64 queries.
template <typename C>
class GroupComputer {
 public:
  __device__ GroupComputer(const AttentionArgs& args, WarpgroupShared<C>& shared)
      : args_(args), shared_(shared), group_(threadIdx.x / 128), thread_(threadIdx.x % 128) {}

  __device__ __forceinline__ void Run(int num_items) {
    WaitForInputs();
    LetNextStart();
    do {
      if (threadIdx.x == 0) {  // every item counts, so that the counter ends where it began
        shared_.next_item =
            gridDim.x + atomicInc(args_.counters, static_cast<uint32_t>(num_items) - 1);
      }
      RunItem(shared_.item);
    } while (NextItem(args_, num_items, shared_));
  }

 private:
  using T = typename C::T;

  __device__ __forceinline__ void RunItem(const AttentionItem& item) {
    LoadQueries();
    const int steps = NumSteps(item);
    float rescale[2];
    state_.Clear();
    StartScores();
    WaitForProducts<0>();
    FinishScores(item, 0);
    state_.Weigh(s_, rescale);
    Pack();
    for (int i = 1; i < steps; ++i) {
      StartScores();
      StartValues();
      WaitForProducts<1>();
      FinishScores(item, i);
      state_.Weigh(s_, rescale);
      FinishValues();
      state_.Rescale(rescale);
      Pack();
    }
    StartValues();
    FinishValues();
    Store();
  }

  // Scaled and rounded to the cache's type.
  __device__ __forceinline__ void LoadQueries() {
    constexpr int kPieces = C::kDim / 8;
#pragma unroll 4
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
    FenceForTensorCores();
    SyncThreads(C::kFirstGroup + group_, 128);
  }

  // Also waits for the copies: nothing of the step before is under way then.
  __device__ __forceinline__ void StartScores() {
    shared_.keys.WaitFull(step_);
    FenceForTensorCores();
    FenceSums();
    const uint32_t q = SharedAddress(shared_.q) + group_ * 64 * kPanelRowBytes;
    const uint32_t k = SharedAddress(shared_.k[step_ % C::kStages]);
#pragma unroll
    for (int d = 0; d < C::kDim; d += 16) {
      const int matrix = d / kPanelCols;
      const uint32_t within = d % kPanelCols * 2;
      MultiplyKeys<T>(s_, RowDescriptor(q + matrix * C::kQueries * kPanelRowBytes + within),
                      RowDescriptor(k + matrix * C::kMatrixBytes + within), d > 0);
    }
    CommitProducts();
  }

  __device__ __forceinline__ void FinishScores(const AttentionItem& item, int i) {
    PinSums(s_);
    shared_.keys.Release(step_);
    ++step_;
    const int first = item.key_begin + i * kStepKeys;
    if (first + kStepKeys > min(item.full_end, item.key_end)) Hide(item, first / kTileKeys);
  }

  __device__ __forceinline__ void Hide(const AttentionItem& item, int tile) {
    const ItemKeys keys(args_, item, nullptr);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = group_ * 64 + SumQuery(thread_, 2 * half);
#pragma unroll
      for (int side = 0; side < kStepKeys / kTileKeys; ++side) {
        const int first = (tile + side) * kTileKeys;
        const uint64_t visible = (keys.VisibleOf(shared_.queries[query], query, tile + side) &
                                  FirstKeys(item.key_end - first)) >>
                                 (thread_ % 4 * 2);
#pragma unroll
        for (int j = 0; j < kTileKeys / 8; ++j) {
          float* pair = &s_[side * 32 + 4 * j + 2 * half];
          if ((visible >> (8 * j) & 1) == 0) pair[0] = kMinusInfinity;
          if ((visible >> (8 * j + 1) & 1) == 0) pair[1] = kMinusInfinity;
        }
      }
    }
  }

  __device__ __forceinline__ void Pack() {
#pragma unroll
    for (int i = 0; i < 32; ++i) weights_[i] = PackPair<T>(s_[2 * i], s_[2 * i + 1]);
  }

  // Those of the step before the one whose scores were started last, or of the last step.
  __device__ __forceinline__ void StartValues() {
    shared_.values.WaitFull(value_step_);
    FenceForTensorCores();
    FenceSums();
    const uint32_t v = SharedAddress(shared_.v[value_step_ % C::kStages]);
#pragma unroll
    for (int k = 0; k < kStepKeys / 16; ++k) {
      MultiplyValues<T>(state_.acc, weights_ + 4 * k,
                        ColumnDescriptor(v + k * 16 * kPanelRowBytes, C::kMatrixBytes));
    }
    CommitProducts();
  }
  __device__ __forceinline__ void FinishValues() {
    WaitForProducts<0>();
    PinSums(state_.acc);
    shared_.values.Release(value_step_);
    ++value_step_;
  }

  __device__ __forceinline__ void Store() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state_.l[half];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      const int index = shared_.queries[group_ * 64 + SumQuery(thread_, 2 * half)].state;
      if (index < 0) continue;
      float* to = args_.State(index);
      if (thread_ % 4 == 0) *reinterpret_cast<float2*>(to) = {state_.m[half], sum};
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        const int column = SumColumn(thread_, 4 * j);
        if (column >= args_.head_dim) continue;
        *reinterpret_cast<float2*>(to + kStateHeader + column) = {state_.acc[4 * j + 2 * half],
                                                                  state_.acc[4 * j + 2 * half + 1]};
      }
    }
  }

  const AttentionArgs& args_;
  WarpgroupShared<C>& shared_;
  int group_;
  int thread_;  // of the group
  int step_ = 0;
  int value_step_ = 0;
  float s_[64];
  uint32_t weights_[32];
  GroupState<C> state_;
};

// Bytes to ask for: the kernel aligns what it gets.
template <typename C>
constexpr size_t kWarpgroupSharedBytes = sizeof(WarpgroupShared<C>) + kPanelAlignment;

// What comes next reads what kernels before this one wrote without waiting itself: so no block lets
// it start before its own wait is over.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    WarpgroupKernel(const __grid_constant__ AttentionArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint32_t misaligned = SharedAddress(DynamicShared()) % kPanelAlignment;
  auto& shared = *reinterpret_cast<WarpgroupShared<C>*>(
      static_cast<uint8_t*>(DynamicShared()) + (kPanelAlignment - misaligned) % kPanelAlignment);
  const int num_items = *args.plan.num_items;
  const AttentionItem item = args.plan.items[blockIdx.x];
  if (item.key_end <= item.key_begin) {
    WaitForInputs();
    LetNextStart();
    return;
  }
  FillSlots<C::kQueries, C::kThreads>(args, item, shared.queries);
  if (threadIdx.x == 0) {
    shared.item = item;
    shared.keys.Init();
    shared.values.Init();
  }
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == C::kGroups) {
    if constexpr (C::kGroups > 1) GiveRegisters<40>();
    Fetcher<C>(args, shared).Run(num_items);
  } else {
    if constexpr (C::kGroups > 1) TakeRegisters<232>();
    GroupComputer<C>(args, shared).Run(num_items);
  }
#endif
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_CUH_
