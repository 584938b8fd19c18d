// The ring of stages of the wgmma GEMMs: what a block does, its mbarriers and its producer.
// Included by CUDA sources only.
//
// The mbarrier `full` of a stage completes when its TMA loads have arrived, `empty` when all
// consumer warps have read it.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_RING_CUH_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_RING_CUH_

#include <cstdint>

#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/wgmma.h"
#include "compute/cuda/gemm/wgmma_layout.h"

namespace talon::cuda {

inline constexpr int kGroupThreads = 128;

// A slot of the ring and the phase parity of its mbarriers.
struct PipelineState {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void Advance(int ring) {
    if (++slot < ring) return;
    slot = 0;
    parity ^= 1;
  }
};

struct WgmmaBarriers {
  uint64_t full[kMaxRing];
  uint64_t empty[kMaxRing];
};

// The work of a block and its shared memory.
struct WgmmaBlock {
  uint32_t ring;   // address of the first stage
  uint32_t full;   // address of the first mbarrier
  uint32_t empty;  // address of the first mbarrier
  int first_item;
  int item_step;
  int rank;  // split-K index within the tile
  int slice_begin;
  int slice_count;

  __device__ uint32_t Full(int slot) const { return full + slot * 8; }
  __device__ uint32_t Empty(int slot) const { return empty + slot * 8; }
};

// The first row of x that an item stores, and the first that its stages have.
__device__ __forceinline__ int TileRow(const WgmmaArgs& args, int item) {
  return item % args.row_tiles * args.groups * kGroupRows;
}
__device__ __forceinline__ int StageRow(const WgmmaArgs& args, int item) {
  return FirstStageRow(TileRow(args, item), args.rows, args.stage_rows);
}

// The ring is the dynamic shared memory, from the first aligned address on.
__device__ __forceinline__ WgmmaBlock DescribeBlock(const WgmmaArgs& args,
                                                    const WgmmaBarriers& barriers) {
  WgmmaBlock block;
  const uint32_t unaligned = SharedAddress(DynamicShared());
  const uint32_t padding = (kRingAlignment - unaligned % kRingAlignment) % kRingAlignment;
  block.ring = SharedAddress(static_cast<uint8_t*>(DynamicShared()) + padding);
  block.full = SharedAddress(barriers.full);
  block.empty = SharedAddress(barriers.empty);
  block.rank = static_cast<int>(blockIdx.x) % args.splits;
  block.first_item = static_cast<int>(blockIdx.x) / args.splits;
  block.item_step = static_cast<int>(gridDim.x) / args.splits;
  block.slice_begin = SegmentBegin(args.slices, args.splits, block.rank);
  block.slice_count = SegmentBegin(args.slices, args.splits, block.rank + 1) - block.slice_begin;
  return block;
}

// Makes the ring's mbarriers ready: one arrival fills a stage, one of each consumer warp frees it.
// Run by one thread.
__device__ __forceinline__ void InitRing(const WgmmaArgs& args, const WgmmaBlock& block) {
  for (int slot = 0; slot < args.ring; ++slot) {
    MbarrierInit(block.Full(slot), 1);
    MbarrierInit(block.Empty(slot), args.groups * kGroupThreads / 32);
  }
  FenceMbarrierInit();
}

// The producer: fills the ring. `Loads` has Prefetch(), LoadWeights(cursor, slot), which also adds
// the bytes of x to the mbarrier's transaction count, and LoadOperand(cursor, slot).
template <typename Loads>
class RingProducer {
 public:
  __device__ RingProducer(const Loads& loads, const WgmmaArgs& args, const WgmmaBlock& block)
      : loads_(loads), args_(args), block_(block), next_{block.first_item, 0} {}

  // Fills the ring with weights, before PdlWait where they are constant.
  __device__ void StartWeights() {
    loads_.Prefetch();
    for (int slot = 0; slot < args_.ring && next_.item < args_.items; ++slot) {
      loads_.LoadWeights(next_, slot);
      Advance(&next_);
    }
  }

  // Loads x of the stages that StartWeights has begun, then all other stages.
  __device__ void Run() {
    StageCursor cursor = {block_.first_item, 0};
    for (int slot = 0; slot < args_.ring && cursor.item < args_.items; ++slot) {
      loads_.LoadOperand(cursor, slot);
      Advance(&cursor);
    }
    PipelineState state;
    while (next_.item < args_.items) {
      MbarrierWait(block_.Empty(state.slot), state.parity);
      loads_.LoadWeights(next_, state.slot);
      loads_.LoadOperand(next_, state.slot);
      Advance(&next_);
      state.Advance(args_.ring);
    }
  }

 private:
  __device__ void Advance(StageCursor* cursor) const {
    cursor->Advance(args_.stage_slices, block_.slice_count, block_.item_step);
  }

  Loads loads_;
  const WgmmaArgs& args_;
  const WgmmaBlock& block_;
  StageCursor next_;  // to load
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_RING_CUH_
