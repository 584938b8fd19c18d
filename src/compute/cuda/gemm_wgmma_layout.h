// Shape and index arithmetic of the product on Hopper's tensor cores (gemm_wgmma.cuh): host
// integers, so that a test without a GPU can prove them.
//
// A block takes a tile of outputs for 64 or 128 rows of x and walks along the inputs in stages of
// 64: one row of weights or of x is 128 bytes of a stage. The copy engine stores those rows
// swizzled, as the tensor cores want them. Where a product has too few outputs for all
// multiprocessors, the blocks of a cluster share a tile and split its inputs.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_

#include <array>
#include <cstdint>

#include "compute/cuda/gemm_layout.h"

#ifdef __CUDACC__
#define TALON_HOST_DEVICE __host__ __device__
#else
#define TALON_HOST_DEVICE
#endif

namespace talon::cuda {

inline constexpr int kGroupRows = 64;       // of x that a warpgroup multiplies
inline constexpr int kWgmmaStageCols = 64;  // inputs
inline constexpr int kStageRowBytes = 2 * kWgmmaStageCols;
inline constexpr int kWgmmaStepCols = 16;  // inputs of one instruction
inline constexpr int kMaxGroups = 2;
inline constexpr int kMaxRing = 16;  // stages in shared memory
inline constexpr int kRingAlignment = 1024;

// The tiles there are kernels for.
inline constexpr std::array kWgmmaOutputs = {64, 96, 128, 192, 224, 248, 256};
inline constexpr std::array kWgmmaSplits = {1, 2, 4, 8};
static_assert(kWgmmaSplits.back() <= kMaxSplits);

// Tells the tensor cores where rows of a stage start: `address` in shared memory, a multiple of
// kRingAlignment. Eight rows, whose 16-byte chunks the copy engine permutes, lie 1024 bytes apart
// from the next eight. Each step adds kDescriptorStep.
TALON_HOST_DEVICE constexpr uint64_t MatrixDescriptor(uint32_t address) {
  constexpr uint64_t kLeadingOffset = 1;  // has no meaning for rows of one swizzled piece
  constexpr uint64_t kEightRows = 8 * kStageRowBytes / 16;
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(address & 0x3FFFF) >> 4} | kLeadingOffset << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}
inline constexpr uint64_t kDescriptorStep = 2 * kWgmmaStepCols / 16;

// Sum i of thread `thread` of a warpgroup belongs to this row and output of the tile.
TALON_HOST_DEVICE constexpr int SumRow(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
TALON_HOST_DEVICE constexpr int SumOutput(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// Floats from one row of a split's sums in shared memory to the next: eight lanes' rows in
// different banks.
TALON_HOST_DEVICE constexpr int PartialStride(int outputs) { return (outputs + 31) / 32 * 32 + 8; }

TALON_HOST_DEVICE constexpr int StageBytes(int outputs, int groups) {
  return (outputs + groups * kGroupRows) * kStageRowBytes;
}

// Walks over the stages of all tiles of a block, which has every `step`th of `items`.
struct StageCursor {
  int item;
  int stage;  // of the block's `count`
  TALON_HOST_DEVICE constexpr void Advance(int count, int step) {
    if (++stage < count) return;
    stage = 0;
    item += step;
  }
};

// How a product is divided. Depends on the shape of the weights and the device alone.
struct WgmmaPlan {
  int outputs = 0;  // of a tile
  int splits = 1;
  int ring_bytes = 200 << 10;  // leaves room for a small kernel beside a block
  int prefetch = 0;            // stages of weights brought to the L2 cache ahead of the ring
};

// Stages that fit the ring.
constexpr int RingStages(const WgmmaPlan& plan, int groups) {
  const int stages = plan.ring_bytes / StageBytes(plan.outputs, groups);
  return stages < kMaxRing ? stages : kMaxRing;
}

// Dynamic shared memory: the ring, where later the sums of a split go, and what aligning it takes.
constexpr int WgmmaSharedBytes(const WgmmaPlan& plan, int groups) {
  const int ring = RingStages(plan, groups) * StageBytes(plan.outputs, groups);
  const int sums = plan.splits == 1 ? 0 : groups * kGroupRows * PartialStride(plan.outputs) * 4;
  return (ring > sums ? ring : sums) + kRingAlignment;
}

// The blocks, or clusters of kWgmmaSplits[i] blocks, that run at the same time.
using ClusterCounts = std::array<int, kWgmmaSplits.size()>;

// In rows of weights that the busiest block reads a stage of. Reading x along counts too, and so
// does summing splits; 24 and 16 fit what an H200 does.
constexpr int64_t WgmmaCost(int outputs, int stages, int tile, int splits, int clusters) {
  const int tiles = (outputs + tile - 1) / tile;
  const int64_t rounds = (tiles + clusters - 1) / clusters;
  const int block_stages = (stages + splits - 1) / splits;
  return rounds * block_stages * (tile + 24) + (splits > 1 ? 16 * splits * splits : 0);
}

// `halves`: the tile is two equal parts, each of whole groups of eight rows.
constexpr WgmmaPlan ChooseWgmmaPlan(int outputs, int stages, const ClusterCounts& clusters,
                                    bool halves) {
  constexpr int kMinStages = 4;
  WgmmaPlan best;
  int64_t best_cost = 0;
  for (size_t i = 0; i < kWgmmaSplits.size(); ++i) {
    const int splits = kWgmmaSplits[i];
    if (clusters[i] == 0 || (splits > 1 && stages < splits * kMinStages)) continue;
    for (const int tile : kWgmmaOutputs) {
      if (halves && tile % 16 != 0) continue;
      const int64_t cost = WgmmaCost(outputs, stages, tile, splits, clusters[i]);
      if (best.outputs == 0 || cost < best_cost) {
        best = {.outputs = tile, .splits = splits};
        best_cost = cost;
      }
    }
  }
  return best;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
