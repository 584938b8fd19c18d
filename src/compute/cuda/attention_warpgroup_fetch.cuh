// The shared memory of WarpgroupKernel (attention_warpgroup.cuh), and the warps that fetch keys and
// values into it: one for each kind, so that neither waits for the other's stages.
//
// Whole runs of a block's keys come through the copy engine, in boxes of 16 keys and 64 columns.
// Steps with nodes in them, or the end of the prefix, are copied vector by vector.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_

#include "compute/cuda/attention_cluster.cuh"
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
  static constexpr int kBoxes = kStepKeys / kBoxKeys * kMatrices;  // of a stage, one for each lane
  static_assert(kBoxes <= 32);
  static constexpr int kSumStride = Dim + 8;  // rows of 8 neighbours lie in different banks
  // Named barriers: all threads; all that compute; for each group of queries, its threads, and its
  // turn.
  static constexpr int kAllBarrier = 0;
  static constexpr int kComputersBarrier = 1;
  static constexpr int kGroupBarrier = 2;
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
  // By a warp that has read the stage.
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
  float2 totals[C::kQueries];  // m and l
  int32_t vectors[2][kStepKeys];
  AttentionItem item;
  int32_t is_last;  // of its queries' clusters
  Ring<C> keys;
  Ring<C> values;

  // Of an item's queries [kQueries][kSumStride], where its keys were.
  __device__ float* sums() {
    static_assert(sizeof(k) >= C::kQueries * C::kSumStride * sizeof(float));
    return reinterpret_cast<float*>(k);
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
  int32_t (&vectors)[kStepKeys];  // of a step that is copied vector by vector
};

// Fetches one kind of operand, with one warp.
template <typename C>
class Fetcher {
 public:
  __device__ Fetcher(const AttentionArgs& args, const Operand<C>& operand)
      : args_(args), operand_(operand), lane_(threadIdx.x % 32) {}

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
    FollowMerge(item);
  }

 private:
  using T = typename C::T;

  // A lane's box holds the keys and columns given by its number. Only used where it is whole.
  __device__ int RowOfBox(const ItemKeys& keys, int first) const {
    return lane_ < C::kBoxes ? keys.VectorOf(first + BoxKey(lane_)) : kNoVector;
  }

  __device__ void CopyBoxes(int row) const {
    const int stage = step_ % C::kStages;
    const uint32_t full = SharedAddress(&operand_.ring.full[stage]);
    if (lane_ == 0) ArriveExpecting(full, C::kStageBytes);
    __syncwarp();
    if (lane_ >= C::kBoxes) return;
    CopyBox(*operand_.map, BoxColumn(lane_), row,
            SharedAddress(operand_.stages[stage]) + BoxOffset(lane_), full);
  }

  __device__ void CopyVectors(const ItemKeys& keys, int first) const {
    constexpr int kPieces = C::kDim / 8;
    constexpr int kKeys = 32 / kPieces;  // that the warp copies at once
    const int stage = step_ % C::kStages;
    const int piece = lane_ % kPieces;
#pragma unroll
    for (int key = lane_; key < kStepKeys; key += 32) {
      operand_.vectors[key] = keys.VectorOf(first + key);
    }
    __syncwarp();
#pragma unroll 4
    for (int key = lane_ / kPieces; key < kStepKeys; key += kKeys) {
      const int vector = operand_.vectors[key];
      const bool present = vector != kNoVector && piece * 8 < args_.head_dim;
      const T* base = static_cast<const T*>(vector < 0 ? operand_.staged : operand_.blocks);
      const int64_t at = static_cast<int64_t>(vector < 0 ? ~vector : vector) * args_.head_dim;
      CopyAsync16(operand_.stages[stage] + PieceOffset(kStepKeys, key, piece),
                  base + (present ? at + piece * 8 : 0), present);
    }
    CommitCopies();
    WaitForCopies<0>();
    FenceForEngines();
    __syncwarp();
    if (lane_ == 0) Arrive(SharedAddress(&operand_.ring.full[stage]));
  }

  const AttentionArgs& args_;
  Operand<C> operand_;
  int lane_;
  int step_ = 0;
  bool has_waited_ = false;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
