// The shared memory of WarpgroupKernel (attention_warpgroup.cuh), and the warpgroup that fetches
// keys and values into it.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_

#include "compute/cuda/attention_item.cuh"
#include "compute/cuda/attention_warpgroup_layout.h"
#include "compute/cuda/attention_warpgroup_mma.cuh"
#include "compute/cuda/hopper.cuh"
#include "compute/cuda/launch.h"

namespace talon::cuda {

template <typename Element, int Dim, int Groups>
struct WarpgroupConfig {
  using T = Element;
  static constexpr int kDim = Dim;        // head_dim, padded with zeros
  static constexpr int kGroups = Groups;  // of 64 queries
  static constexpr int kQueries = 64 * Groups;
  static constexpr int kThreads = 128 * (Groups + 1);
  static constexpr int kStages = 2;
  static constexpr int kMatrices = Dim / kPanelCols;
  static constexpr int kMatrixBytes = kStepKeys * kPanelRowBytes;
  static constexpr int kStageBytes = kMatrices * kMatrixBytes;
  // Named barriers: all threads, those that fetch, then one for each group of queries.
  static constexpr int kAll = 1;
  static constexpr int kFetchers = 2;
  static constexpr int kFirstGroup = 3;
};

// One kind of operand: its stages, and how far they are.
template <typename C>
struct Ring {
  uint64_t full[C::kStages];
  uint64_t empty[C::kStages];

  __device__ void Init() {
    for (int i = 0; i < C::kStages; ++i) {
      InitBarrier(SharedAddress(&full[i]), 128);              // threads that fetch
      InitBarrier(SharedAddress(&empty[i]), 4 * C::kGroups);  // warps that compute
    }
  }
  // Steps are counted over all items of the block.
  __device__ void WaitFull(int step) const {
    WaitBarrier(SharedAddress(&full[step % C::kStages]), step / C::kStages % 2);
  }
  __device__ void WaitEmpty(int step) const {
    WaitBarrier(SharedAddress(&empty[step % C::kStages]), step / C::kStages % 2 ^ 1);
  }
  __device__ void Release(int step) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(SharedAddress(&empty[step % C::kStages]));
  }
};

template <typename C>
struct WarpgroupShared {
  alignas(kPanelAlignment) uint8_t q[C::kMatrices * C::kQueries * kPanelRowBytes];
  alignas(kPanelAlignment) uint8_t k[C::kStages][C::kStageBytes];
  alignas(kPanelAlignment) uint8_t v[C::kStages][C::kStageBytes];
  QuerySlot queries[C::kQueries];
  int32_t vectors[2][kStepKeys];
  AttentionItem item;
  int32_t next_item;
  Ring<C> keys;
  Ring<C> values;
};

// The block's next item, known to all threads when this returns; false: none is left.
template <typename C>
__device__ __forceinline__ bool NextItem(const AttentionArgs& args, int num_items,
                                         WarpgroupShared<C>& shared) {
  SyncThreads(C::kAll, C::kThreads);
  const int index = shared.next_item;
  if (index >= num_items) return false;
  const AttentionItem item = args.plan.items[index];
  FillSlots<C::kQueries, C::kThreads>(args, item, shared.queries);
  if (threadIdx.x == 0) shared.item = item;
  SyncThreads(C::kAll, C::kThreads);
  return true;
}

__device__ __forceinline__ int NumSteps(const AttentionItem& item) {
  return (item.key_end - item.key_begin + kStepKeys - 1) / kStepKeys;
}

// Fetches the keys and values of items, with the last 128 threads.
template <typename C>
class Fetcher {
 public:
  __device__ Fetcher(const AttentionArgs& args, WarpgroupShared<C>& shared)
      : args_(args), shared_(shared), thread_(threadIdx.x - 128 * C::kGroups) {}

  // Keys that this pass does not write are fetched before the kernels in front are done.
  __device__ void Run(int num_items) {
    do {
      RunItem(shared_.item);
      if (!has_waited_) Wait();
    } while (NextItem(args_, num_items, shared_));
  }

 private:
  __device__ void Wait() {
    WaitForInputs();
    has_waited_ = true;
  }

  __device__ void RunItem(const AttentionItem& item) {
    const ItemKeys keys(args_, item);
    const int steps = NumSteps(item);
    shared_.vectors[0][thread_] = keys.VectorOf(item.key_begin + thread_);
    for (int i = 0; i < steps; ++i, ++step_) {
      const int end = item.key_begin + (i + 1) * kStepKeys;
      const int next = i + 1 < steps ? keys.VectorOf(end + thread_) : kNoVector;
      SyncThreads(C::kFetchers, 128);
      if (!has_waited_ && end > item.old_end) Wait();
      const int stage = step_ % C::kStages;
      shared_.keys.WaitEmpty(step_);
      Copy(args_.k_blocks, args_.k_staged, shared_.vectors[i % 2], shared_.k[stage]);
      ArriveWithCopies(SharedAddress(&shared_.keys.full[stage]));
      shared_.values.WaitEmpty(step_);
      Copy(args_.v_blocks, args_.v_staged, shared_.vectors[i % 2], shared_.v[stage]);
      ArriveWithCopies(SharedAddress(&shared_.values.full[stage]));
      shared_.vectors[(i + 1) % 2][thread_] = next;  // last read two barriers ago
    }
    SyncThreads(C::kFetchers, 128);
  }

  __device__ void Copy(const void* blocks, const void* staged, const int32_t* vectors,
                       uint8_t* stage) const {
    using T = typename C::T;
    constexpr int kPieces = C::kDim / 8;
    constexpr int kKeys = 128 / kPieces;  // of one round
    const int piece = thread_ % kPieces;
#pragma unroll 4
    for (int i = 0; i < kStepKeys / kKeys; ++i) {
      const int key = i * kKeys + thread_ / kPieces;
      const int vector = vectors[key];
      const bool present = vector != kNoVector && piece * 8 < args_.head_dim;
      const T* base = static_cast<const T*>(vector < 0 ? staged : blocks);
      const int64_t offset =
          present ? static_cast<int64_t>(vector < 0 ? ~vector : vector) * args_.head_dim + piece * 8
                  : 0;
      CopyAsync16(stage + PieceOffset(kStepKeys, key, piece), base + offset, present);
    }
  }

  const AttentionArgs& args_;
  WarpgroupShared<C>& shared_;
  int thread_;
  int step_ = 0;
  bool has_waited_ = false;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
