// The producer warps of WarpgroupKernel (attention/warpgroup.cuh) for K and V in 16 bits.
//
// Whole runs of a block's keys are loaded by TMA, in boxes of 16 keys and 64 columns; the blocks of
// a pair load half of the boxes each and multicast them to both. The other keys, nodes or the end
// of the prefix, are copied vector by vector with cp.async, by each block for itself.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_

#include "compute/cuda/attention/boxes.cuh"
#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/pair.cuh"
#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/attention/warpgroup_shared.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// One of the kFetchWarps producer warps of an operand.
template <typename C>
class Fetcher {
 public:
  __device__ Fetcher(const AttentionArgs& args, const Operand<C>& operand, int warp)
      : args_(args), operand_(operand), warp_(warp), lane_(threadIdx.x % 32) {
    constexpr int kFetchers = C::kFetchWarps * (C::kPair ? 2 : 1);
    const int fetcher = C::kPair ? warp * 2 + ClusterRank() : warp;
    box_ = fetcher + kFetchers * lane_;
  }

  __device__ void RunItem(const AttentionItem& item) {
    const ItemKeys keys(args_, item);
    // Whole boxes only. The last key of a prompt's tile lies anywhere in a box.
    const int boxed_end =
        operand_.map != nullptr ? min(item.key_end, item.prefix_end) / kBoxKeys * kBoxKeys : 0;
    int next = RowOfBox(keys, item.key_begin);
    for (int first = item.key_begin; first < item.key_end; first += kStepKeys, ++step_) {
      const int row = next;
      const int end = first + kStepKeys;
      if (end < item.key_end) next = RowOfBox(keys, end);
      const int boxed = first < boxed_end ? boxed_end - first : 0;
      if (end > boxed_end) FindVectors(keys, first, boxed);
      // Keys that no overlapped kernel writes are loaded before PdlWait.
      if (!has_waited_ && end > item.old_end) {
        PdlWait();
        has_waited_ = true;
      }
      operand_.ring.WaitEmpty(step_);
      if (end <= boxed_end) {
        LoadBoxes(row);
      } else {
        LoadOwnBoxes(keys, first, boxed);
        CopyVectors(boxed);
      }
    }
  }

 private:
  using T = typename C::T;
  static constexpr int kFetchWarps = C::kFetchWarps;
  static constexpr int kPieces = C::kDim / 8;
  static constexpr int kKeysAtOnce = 32 / kPieces;  // keys that a warp copies at once

  // Row of the lane's box in the tensor map; only used where the box is complete.
  __device__ int RowOfBox(const ItemKeys& keys, int first) const {
    return box_ < C::kBoxes ? keys.VectorOf(first + BoxKey(box_)) : kNoVector;
  }

  __device__ void LoadBoxes(int row) const {
    const int stage = step_ % C::kStages;
    const uint32_t full = SharedAddress(&operand_.ring.full[stage]);
    if (lane_ == 0 && warp_ == 0) MbarrierArriveExpectTx(full, C::kStageBytes);
    if (lane_ == 0 && warp_ != 0) MbarrierArrive(full);
    __syncwarp();
    if (box_ >= C::kBoxes) return;
    const uint32_t to = SharedAddress(operand_.stages[stage]) + BoxOffset(box_);
    if constexpr (C::kPair) {
      TmaLoadBoxMulticast(*operand_.map, BoxColumn(box_), row, to, full);
    } else {
      TmaLoadBox(*operand_.map, BoxColumn(box_), row, to, full);
    }
  }

  // Loads the boxes of a step's first `boxed` keys, into this block alone.
  __device__ void LoadOwnBoxes(const ItemKeys& keys, int first, int boxed) const {
    const int box = warp_ + kFetchWarps * lane_;
    const bool exists = box < C::kBoxes && BoxKey(box) < boxed;
    const int stage = step_ % C::kStages;
    const uint32_t full = SharedAddress(&operand_.ring.full[stage]);
    const int boxes = __popc(__ballot_sync(0xffffffffu, exists));
    if (lane_ == 0) MbarrierExpectTx(full, boxes * kBoxBytes);
    __syncwarp();
    if (!exists) return;
    TmaLoadBox(*operand_.map, BoxColumn(box), keys.VectorOf(first + BoxKey(box)),
               SharedAddress(operand_.stages[stage]) + BoxOffset(box), full);
  }

  // Key of a step that this warp copies as its i-th: every other group of kKeysAtOnce.
  __device__ int KeyOf(int i) const {
    return (i / kKeysAtOnce * kFetchWarps + warp_) * kKeysAtOnce + i % kKeysAtOnce;
  }
  static_assert(kBoxKeys % (kFetchWarps * kKeysAtOnce) == 0);
  // Looks up the vectors of the keys after the first `boxed`.
  __device__ void FindVectors(const ItemKeys& keys, int first, int boxed) const {
    __syncwarp();  // the vectors of the previous step have been read
    for (int i = boxed / kFetchWarps + lane_; KeyOf(i) < kStepKeys; i += 32) {
      operand_.vectors[KeyOf(i)] = keys.VectorOf(first + KeyOf(i));
    }
    __syncwarp();
  }
  // Vectors are read ahead of the copies, because the compiler does not reorder loads across them.
  __device__ void CopyVectors(int boxed) const {
    constexpr int kMost = kBoxKeys / (kFetchWarps * kKeysAtOnce);
    constexpr int kBatch = C::kPair ? kMost / 2 : kMost;  // fewer registers in pairs
    const int stage = step_ % C::kStages;
    const int piece = lane_ % kPieces;
    const bool inside = piece * 8 < args_.head_dim;
    for (int i = boxed / kFetchWarps + lane_ / kPieces; KeyOf(i) < kStepKeys;
         i += kBatch * kKeysAtOnce) {
      int vectors[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) vectors[b] = operand_.vectors[KeyOf(i + b * kKeysAtOnce)];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int vector = vectors[b];
        const bool present = vector != kNoVector && inside;
        const T* base = static_cast<const T*>(vector < 0 ? operand_.staged : operand_.blocks);
        const int64_t at = static_cast<int64_t>(vector < 0 ? ~vector : vector) * args_.head_dim;
        CpAsync16(
            operand_.stages[stage] + PieceOffset(kStepKeys, KeyOf(i + b * kKeysAtOnce), piece),
            base + (present ? at + piece * 8 : 0), present);
      }
    }
    CpAsyncCommitGroup();
    CpAsyncWaitGroup<0>();
    FenceProxyAsync();
    __syncwarp();
    if (lane_ == 0) MbarrierArrive(SharedAddress(&operand_.ring.full[stage]));
  }

  const AttentionArgs& args_;
  Operand<C> operand_;
  int warp_;
  int lane_;
  int box_;  // the lane's box of each step, if < kBoxes
  int step_ = 0;
  bool has_waited_ = false;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_FETCH_CUH_
