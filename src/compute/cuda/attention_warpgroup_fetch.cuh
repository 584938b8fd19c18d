// The shared memory of WarpgroupKernel (attention_warpgroup.cuh), and the warps that fetch keys and
// values into it: one for each kind, so that neither waits for the other's stages.
//
// Whole runs of a block's keys come through the copy engine, in boxes of 16 keys and 64 columns; a
// cluster's blocks fetch a part of each step and give it to all. Steps with nodes in them, or the
// end of the prefix, are copied vector by vector, by each block for itself.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_

#include "compute/cuda/attention_boxes.cuh"
#include "compute/cuda/attention_item.cuh"
#include "compute/cuda/attention_warpgroup_layout.h"
#include "compute/cuda/attention_warpgroup_mma.cuh"
#include "compute/cuda/hopper.cuh"
#include "compute/cuda/launch.h"

namespace talon::cuda {

template <typename Element, int Dim, int Groups, int Cluster>
struct WarpgroupConfig {
  using T = Element;
  static constexpr int kDim = Dim;          // head_dim, padded with zeros
  static constexpr int kGroups = Groups;    // of 64 queries
  static constexpr int kCluster = Cluster;  // blocks that share keys and values
  static constexpr int kQueries = 64 * Groups;
  static constexpr int kThreads = 128 * (Groups + 1);
  static constexpr int kStages = 2;
  static constexpr int kMatrices = Dim / kPanelCols;
  static constexpr int kMatrixBytes = kStepKeys * kPanelRowBytes;
  static constexpr int kStageBytes = kMatrices * kMatrixBytes;
  static constexpr int kBoxes = kStepKeys / kBoxKeys * kMatrices;  // of a stage, one for each lane
  static_assert(kBoxes <= 32);
  // Named barriers, one for each group of queries: its threads; whose turn it is.
  static constexpr int kGroupBarrier = 1;
  static constexpr int kTurnBarrier = kGroupBarrier + Groups;
};

// One kind of operand: its stages, and how far they are.
template <typename C>
struct Ring {
  uint64_t full[C::kStages];
  uint64_t empty[C::kStages];

  __device__ void Init() {
    for (int i = 0; i < C::kStages; ++i) {
      InitBarrier(SharedAddress(&full[i]), 1);
      InitBarrier(SharedAddress(&empty[i]), 4 * C::kGroups * C::kCluster);  // warps that compute
    }
  }
  // Steps are counted over all items of the block.
  __device__ void WaitFull(int step) const {
    WaitBarrier(SharedAddress(&full[step % C::kStages]), step / C::kStages % 2);
  }
  __device__ void WaitEmpty(int step) const {
    WaitBarrier(SharedAddress(&empty[step % C::kStages]), step / C::kStages % 2 ^ 1);
  }
  // By a warp that has read the stage. The other block of a cluster writes to it, too. This block's
  // barrier comes first: when the other one's says that all are done, so does this one's soon, and
  // no arrival of a later step can be ahead of it.
  __device__ void Release(int step) const {
    const uint32_t barrier = SharedAddress(&empty[step % C::kStages]);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    Arrive(barrier);
    if constexpr (C::kCluster > 1) ArriveInCluster(barrier, RankInCluster() ^ 1);
  }
};

template <typename C>
struct WarpgroupShared {
  alignas(kPanelAlignment) uint8_t q[C::kMatrices * C::kQueries * kPanelRowBytes];
  alignas(kPanelAlignment) uint8_t k[C::kStages][C::kStageBytes];
  alignas(kPanelAlignment) uint8_t v[C::kStages][C::kStageBytes];
  QuerySlot queries[C::kQueries];
  AttentionItem items[C::kGroups];
  Ring<C> keys;
  Ring<C> values;
};

__device__ __forceinline__ int NumSteps(const AttentionItem& item) {
  return (item.key_end - item.key_begin + kStepKeys - 1) / kStepKeys;
}

// The items of a cluster, and what they are to one of its blocks.
template <typename C>
struct ClusterItems {
  int num_items;
  int stride = gridDim.x / C::kCluster;
  int first = blockIdx.x / C::kCluster;
  int rank = C::kCluster > 1 ? RankInCluster() : 0;

  __device__ AttentionItem ItemOf(const AttentionArgs& args, int index) const {
    AttentionItem item = args.plan.items[index];
    item.query_begin += rank * C::kQueries;
    return item;
  }
};

// Where one kind of operand comes from and goes to.
template <typename C>
struct Operand {
  const CUtensorMap* map;  // of `blocks`, or null
  const void* blocks;
  const void* staged;
  const Ring<C>& ring;
  uint8_t (&stages)[C::kStages][C::kStageBytes];
};

// Fetches one kind of operand of all items, with one warp.
template <typename C>
class Fetcher {
 public:
  __device__ Fetcher(const AttentionArgs& args, const ClusterItems<C>& items,
                     const Operand<C>& operand)
      : args_(args), items_(items), operand_(operand), lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    for (int i = items_.first; i < items_.num_items; i += items_.stride) {
      RunItem(items_.ItemOf(args_, i));
    }
  }

 private:
  using T = typename C::T;

  __device__ void RunItem(const AttentionItem& item) {
    const ItemKeys keys(args_, item);
    const int boxed_end =
        operand_.map != nullptr ? min(item.key_end, item.prefix_end / kBoxKeys * kBoxKeys) : 0;
    int next = RowOfBox(keys, item.key_begin);
    for (int first = item.key_begin; first < item.key_end; first += kStepKeys, ++step_) {
      const int row = next;
      const int end = first + kStepKeys;
      if (end < item.key_end) next = RowOfBox(keys, end);
      // Keys that this pass does not write are fetched before the kernels in front are done.
      if (!has_waited_ && end > item.old_end) {
        WaitForInputs();
        has_waited_ = true;
      }
      operand_.ring.WaitEmpty(step_);
      if (end <= boxed_end) {
        CopyBoxes(row);
      } else {
        CopyVectors(keys, first);
      }
    }
  }

  // A lane's box holds the keys and columns given by its number. Only used where it is whole.
  __device__ int RowOfBox(const ItemKeys& keys, int first) const {
    return lane_ < C::kBoxes ? keys.VectorOf(first + BoxKey(lane_)) : kNoVector;
  }

  __device__ void CopyBoxes(int row) const {
    const int stage = step_ % C::kStages;
    const uint32_t full = SharedAddress(&operand_.ring.full[stage]);
    if (lane_ == 0) ArriveExpecting(full, C::kStageBytes);
    __syncwarp();
    if (lane_ >= C::kBoxes || lane_ % C::kCluster != items_.rank) return;
    const uint32_t to = SharedAddress(operand_.stages[stage]) + BoxOffset(lane_);
    if constexpr (C::kCluster > 1) {
      CopyBoxToCluster(*operand_.map, BoxColumn(lane_), row, to, full, (1 << C::kCluster) - 1);
    } else {
      CopyBox(*operand_.map, BoxColumn(lane_), row, to, full);
    }
  }

  __device__ void CopyVectors(const ItemKeys& keys, int first) const {
    constexpr int kPieces = C::kDim / 8;
    constexpr int kKeys = 32 / kPieces;  // that the warp copies at once
    const int stage = step_ % C::kStages;
    const int piece = lane_ % kPieces;
    for (int begin = 0; begin < kStepKeys; begin += 32) {
      const int own = begin + lane_ < kStepKeys ? keys.VectorOf(first + begin + lane_) : kNoVector;
#pragma unroll 4
      for (int i = 0; i < 32; i += kKeys) {
        const int key = begin + i + lane_ / kPieces;
        const int vector = __shfl_sync(0xffffffffu, own, i + lane_ / kPieces);
        if (key >= kStepKeys) continue;
        const bool present = vector != kNoVector && piece * 8 < args_.head_dim;
        const T* base = static_cast<const T*>(vector < 0 ? operand_.staged : operand_.blocks);
        const int64_t at = static_cast<int64_t>(vector < 0 ? ~vector : vector) * args_.head_dim;
        CopyAsync16(operand_.stages[stage] + PieceOffset(kStepKeys, key, piece),
                    base + (present ? at + piece * 8 : 0), present);
      }
    }
    CommitCopies();
    WaitForCopies<0>();
    FenceForEngines();
    __syncwarp();
    if (lane_ == 0) Arrive(SharedAddress(&operand_.ring.full[stage]));
  }

  const AttentionArgs& args_;
  const ClusterItems<C>& items_;
  const Operand<C>& operand_;
  int lane_;
  int step_ = 0;
  bool has_waited_ = false;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
