// Shape and index arithmetic of the product on Hopper's tensor cores (gemm_wgmma.cuh): host
// integers, so that a test without a GPU can prove them.
//
// A block takes a tile of outputs for 64 or 128 rows of x and walks along the inputs in stages of
// 64: one row of weights or of x is 128 bytes of a stage. The copy engine stores those rows
// swizzled, as the tensor cores want them. Where a product has too few outputs for all
// multiprocessors, several blocks share a tile and split its inputs.
//
// A stage holds the rows of x that there are, in groups of eight, and then the weights. The tensor
// cores take 64 rows all the same: behind the last they find weights, and sums nobody asks for.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_

#include <array>
#include <cstdint>

#include "compute/cuda/device/host_device.h"
#include "compute/cuda/gemm/layout.h"

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
TALON_HOST_DEVICE constexpr int AccumulatorRow(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
TALON_HOST_DEVICE constexpr int AccumulatorOutput(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// Rows of x in a stage, for products of `rows` rows by `groups` warpgroups.
TALON_HOST_DEVICE constexpr int StageRows(int rows, int groups) {
  const int most = groups * kGroupRows;
  return rows < most ? (rows + 7) / 8 * 8 : most;
}
TALON_HOST_DEVICE constexpr int StageBytes(int outputs, int stage_rows) {
  return (outputs + stage_rows) * kStageRowBytes;
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
};

// Stages that fit the ring.
constexpr int RingStages(const WgmmaPlan& plan, int stage_rows) {
  const int stages = plan.ring_bytes / StageBytes(plan.outputs, stage_rows);
  return stages < kMaxRing ? stages : kMaxRing;
}

// Dynamic shared memory: the ring and what aligning it takes.
constexpr int WgmmaSharedBytes(const WgmmaPlan& plan, int stage_rows) {
  return RingStages(plan, stage_rows) * StageBytes(plan.outputs, stage_rows) + kRingAlignment;
}

// In rows of weights that the busiest block reads a stage of. Reading x along counts too, and so
// does summing splits; 24 and 16 fit what an H200 does.
constexpr int64_t WgmmaCost(int outputs, int stages, int tile, int splits, int blocks) {
  const int tiles = (outputs + tile - 1) / tile;
  const int64_t rounds = (tiles * splits + blocks - 1) / blocks;
  const int block_stages = (stages + splits - 1) / splits;
  return rounds * block_stages * (tile + 24) + (splits > 1 ? 16 * splits * splits : 0);
}

// For a device where `blocks` blocks run at the same time. Those that split a tile wait for each
// other, so they all do. `halves`: the tile is two equal parts, each of whole groups of eight rows.
constexpr WgmmaPlan ChooseWgmmaPlan(int outputs, int stages, int blocks, bool halves) {
  constexpr int kMinStages = 4;
  WgmmaPlan best;
  int64_t best_cost = 0;
  for (const int splits : kWgmmaSplits) {
    if (splits > 1 && stages < splits * kMinStages) continue;
    for (const int tile : kWgmmaOutputs) {
      if (halves && tile % 16 != 0) continue;
      if (splits > 1 && (outputs + tile - 1) / tile * splits > blocks) continue;
      const int64_t cost = WgmmaCost(outputs, stages, tile, splits, blocks);
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
