// The producer warps of WarpgroupKernel (attention/warpgroup.cuh) for K and V in 8 bits: they read
// codes to registers and store them expanded to bf16. TMA cannot expand, and codes that pass
// through shared memory would take bandwidth that wgmma needs for its operands.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_EXPAND_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_EXPAND_CUH_

#include "base/math.h"
#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/pair.cuh"
#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/attention/warpgroup_shared.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/device/kv_codes.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Loads that are issued where they stand, past L1 (LoadQueries in tile.cuh).
__device__ __forceinline__ uint4 LoadPiece(const void* from) {
  uint4 x;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
__device__ __forceinline__ uint32_t LoadByte(const void* from) {
  uint32_t x;
  asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

// One of the kFetchWarps producer warps of an operand: takes every kFetchWarps-th portion
// (warpgroup_layout.h) of the block's steps. As soon as a piece of codes is expanded, that of the
// next portion is loaded to its registers; where the keys after those lie is looked up meanwhile.
// The loop is short, because it and that of the consumers must stay in the instruction cache. The
// blocks of a pair expand half of the portions each, and copy them to the other.
template <typename C>
class CodeExpander {
 public:
  __device__ CodeExpander(const AttentionArgs& args, const Operand<C>& operand, int warp)
      : args_(args), operand_(operand), lane_(threadIdx.x % 32), next_item_(blockIdx.x) {
    begin_ = C::kPair ? warp * 2 + ClusterRank() : warp;
    offset_ = PieceOffset(kStepKeys, CodeKey(C::kDim, lane_, 0), 2 * CodePiece(C::kDim, lane_));
    const int column = CodePiece(C::kDim, lane_) * 16;
    column_ = column < args.head_dim ? column : 0;  // queries are zero there
  }

  __device__ __forceinline__ void Run() {
    Key key = KeyOf(begin_, Find(begin_));
    WaitFor(begin_);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) codes_[i] = Load(key, i);
    scale_ = LoadByte(key.scale);
    key = KeyOf(begin_ + kStride, Find(begin_ + kStride));
#pragma unroll 1
    for (int index = begin_; index < end_; index += kStride) {
      const int later = index + 2 * kStride;
      const int entry = Find(later);
      WaitFor(index + kStride);
      Expand(index, key);
      key = KeyOf(later, entry);
    }
  }

 private:
  using Stored = typename C::Stored;
  static constexpr int kLoads = CodeLoads(C::kDim);
  static constexpr int kPortions = kStepKeys / kPortionKeys;  // in a step
  static constexpr int kStride = C::kFetchWarps * (C::kPair ? 2 : 1);
  static constexpr uint32_t kLargest = PairExpander<Stored>::kLargest;
  static_assert(kPortionKeys == 32, "each lane finds one key");

  // Where the codes of a lane's key are, and where their scale is.
  struct Key {
    const uint8_t* codes;
    const uint8_t* scale;
  };

  // The lane's key in a portion, for whose item Find was called last.
  __device__ __forceinline__ int IndexOfKey(int portion) const {
    return origin_ + portion * kPortionKeys + lane_;
  }

  // Looks up the lane's key in a portion: the entry of the block list, or of the nodes' places.
  __device__ __forceinline__ int Find(int portion) {
    while (portion >= item_end_) {
      if (next_item_ < 0) {
        end_ = min(end_, portion);
        return 0;
      }
      TakeItem();
    }
    if (origin_ + (portion + 1) * kPortionKeys > item_.old_end) fresh_ = min(fresh_, portion);
    const int key = min(IndexOfKey(portion), item_.key_end - 1);
    const int32_t* entry = blocks_ + (key >> args_.block_shift);
    if (key >= item_.prefix_end) {
      entry = args_.plan.node_places + item_.nodes + key - item_.prefix_end;
    }
    return *entry;
  }

  // Where the lane's key is, given what Find has returned; zeros after the last one.
  __device__ __forceinline__ Key KeyOf(int portion, int entry) const {
    const int key = IndexOfKey(portion);
    int place = entry;
    if (key < item_.prefix_end) {
      place = (entry << args_.block_shift) + (key & ((1 << args_.block_shift) - 1));
    }
    if (portion >= end_ || key >= item_.key_end) return {args_.zeros(), args_.zeros()};
    const int vector = args_.VectorOf(place, item_.kv_head);
    const bool staged = vector < 0;
    const int64_t index = staged ? ~vector : vector;
    const int64_t vectors = staged ? args_.staged_vectors : args_.block_vectors;
    const auto* codes = static_cast<const uint8_t*>(staged ? operand_.staged : operand_.blocks);
    return {codes + index * args_.head_dim, codes + vectors * args_.head_dim + index};
  }

  __device__ __forceinline__ void TakeItem() {
    item_ = args_.plan.items[next_item_];
    next_item_ = item_.next;
    blocks_ = ItemKeys(args_, item_).blocks;
    origin_ = item_.key_begin - item_end_ * kPortionKeys;
    item_end_ += CeilDiv(item_.key_end - item_.key_begin, kStepKeys) * kPortions;
  }

  // Before a portion is loaded. Keys that no overlapped kernel writes are loaded before PdlWait.
  __device__ __forceinline__ void WaitFor(int portion) {
    if (portion < fresh_ || has_waited_) return;
    PdlWait();
    has_waited_ = true;
  }

  // Starts to load the lane's i-th piece of a portion. `own` is the lane's own key.
  __device__ __forceinline__ uint4 Load(const Key& own, int i) const {
    const uint64_t codes =
        __shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(own.codes), CodeKey(C::kDim, lane_, i));
    return LoadPiece(reinterpret_cast<const uint8_t*>(codes) + column_);
  }

  // Expands the portion in registers, and starts to load the next one, which has `next`.
  __device__ __forceinline__ void Expand(int index, const Key& next) {
    const uint32_t portion = index;
    const uint32_t step = portion / kPortions;
    uint8_t* to =
        operand_.stages[step % C::kStages] + portion % kPortions * kPortionKeys * kPanelRowBytes;
    operand_.ring.WaitEmpty(step);
    const uint32_t scale = scale_;
    scale_ = LoadByte(next.scale);
    Store(scale, next, to);
    if (__any_sync(0xffffffffu, scale > kLargest)) ScaleStored(scale, to);
    FenceProxyAsync();
    __syncwarp();
    const uint32_t full = SharedAddress(&operand_.ring.full[step % C::kStages]);
    if (lane_ != 0) return;
    if constexpr (C::kPair) {
      Exchange(SharedAddress(to), full);
    } else {
      MbarrierArrive(full);
    }
  }
  // Copies an expanded portion to the other block, from which one arrives here.
  __device__ __forceinline__ void Exchange(uint32_t portion, uint32_t full) const {
    constexpr int kBytes = kPortionKeys * kPanelRowBytes;
    MbarrierArriveExpectTx(full, C::kMatrices * kBytes);
#pragma unroll
    for (int i = 0; i < C::kMatrices; ++i) {
      CopyToBlock(portion + i * C::kMatrixBytes, kBytes, full, ClusterRank() ^ 1);
    }
  }

  __device__ __forceinline__ void Store(uint32_t scale, const Key& next, uint8_t* to) {
    const uint32_t own = min(max(scale, uint32_t{kLeastKvScale}), kLargest);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t others = __shfl_sync(0xffffffffu, own, CodeKey(C::kDim, lane_, i));
      const ExpandedCodes x = ExpandOrdinaryCodes<Stored>(codes_[i], others);
      codes_[i] = Load(next, i);
      *reinterpret_cast<uint4*>(to + CodeOffset(C::kDim, offset_, i, 0)) = x.first;
      *reinterpret_cast<uint4*>(to + CodeOffset(C::kDim, offset_, i, 1)) = x.second;
    }
  }
  // Scales beyond kLargest are rare.
  __device__ __forceinline__ void ScaleStored(uint32_t own, uint8_t* to) const {
#pragma unroll 1
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t factor =
          ExcessFactor<Stored>(__shfl_sync(0xffffffffu, own, CodeKey(C::kDim, lane_, i)));
      ScaleEight(factor, reinterpret_cast<uint4*>(to + CodeOffset(C::kDim, offset_, i, 0)));
      ScaleEight(factor, reinterpret_cast<uint4*>(to + CodeOffset(C::kDim, offset_, i, 1)));
    }
  }

  const AttentionArgs& args_;
  Operand<C> operand_;
  int lane_;
  int offset_;  // the lane's first piece in a portion that is expanded
  int column_;  // where the lane's pieces begin
  // A lane's pieces of a portion, of several keys, and the scale of its own key.
  uint4 codes_[kLoads];
  uint32_t scale_;
  // Portions are counted over all items of the block.
  int begin_;              // the warp's first one
  int end_ = INT32_MAX;    // how many there are, once it is known
  int fresh_ = INT32_MAX;  // the first that overlapped kernels may write, once it is known
  int item_end_ = 0;
  int origin_ = 0;  // key of the item where portion 0 would be
  AttentionItem item_;
  const int32_t* blocks_ = nullptr;
  int next_item_;
  bool has_waited_ = false;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_WARPGROUP_EXPAND_CUH_
