// Shape and index arithmetic of the wgmma GEMM (gemm/wgmma.cuh): host integers, so that a test
// without a GPU can verify them.
//
// A block takes a tile of outputs for 64 or 128 rows of x and walks along the inputs (K) in stages
// of 64: one row of weights or of x is 128 bytes of a stage. TMA stores those rows with the
// 128-byte swizzle that wgmma reads. Where a GEMM has too few outputs for all SMs, its inputs are
// cut into segments, whose sums are added in order: by several blocks that share a tile (split-K)
// or, where the rows are many, by one block that takes one segment after the other. The segments
// depend on the shape of the weights alone; tiles do not change the order of additions.
//
// A stage holds the existing rows of x, in groups of eight, followed by the weights. wgmma always
// reads 64 rows: after the last row of x it reads weights, into accumulators that are not stored.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_

#include <array>
#include <cstdint>

#include "base/math.h"
#include "compute/cuda/device/host_device.h"
#include "compute/cuda/gemm/layout.h"

namespace talon::cuda {

inline constexpr int kGroupRows = 64;       // rows of x per warpgroup
inline constexpr int kWgmmaStageCols = 64;  // inputs
inline constexpr int kStageRowBytes = 2 * kWgmmaStageCols;
inline constexpr int kWgmmaStepCols = 16;  // inputs (K) of one instruction
inline constexpr int kMaxGroups = 2;
inline constexpr int kMaxRing = 16;  // stages in shared memory
inline constexpr int kRingAlignment = 1024;

// Outputs per tile for which kernels are compiled.
inline constexpr std::array kWgmmaOutputs = {32, 48, 64, 96, 128, 192, 224, 248, 256};
// The tile whose kernel can add segments of the inputs one after the other.
inline constexpr int kSegmentedOutputs = 128;
inline constexpr std::array kWgmmaSplits = {1, 2, 4, 8};
static_assert(kWgmmaSplits.back() <= kMaxSplits);

// wgmma matrix descriptor of rows of a stage: `address` in shared memory is a multiple of
// kRingAlignment. Groups of eight rows, whose 16-byte chunks are swizzled, lie 1024 bytes apart.
// Each step adds kDescriptorStep.
TALON_HOST_DEVICE constexpr uint64_t MatrixDescriptor(uint32_t address) {
  constexpr uint64_t kLeadingOffset = 1;  // ignored for K-major swizzled layouts
  constexpr uint64_t kEightRows = 8 * kStageRowBytes / 16;
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(address & 0x3FFFF) >> 4} | kLeadingOffset << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}
inline constexpr uint64_t kDescriptorStep = 2 * kWgmmaStepCols / 16;

// Row and output of the tile that accumulator i of thread `thread` of a warpgroup holds.
TALON_HOST_DEVICE constexpr int AccumulatorRow(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
TALON_HOST_DEVICE constexpr int AccumulatorOutput(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// Rows of x in a stage, for GEMMs of `rows` rows by `groups` warpgroups.
TALON_HOST_DEVICE constexpr int StageRows(int rows, int groups) {
  const int most = groups * kGroupRows;
  return rows < most ? RoundUp(rows, 8) : most;
}
TALON_HOST_DEVICE constexpr int StageBytes(int outputs, int stage_rows) {
  const int read = stage_rows > kGroupRows ? 2 * kGroupRows : kGroupRows;
  return (outputs + stage_rows > read ? outputs + stage_rows : read) * kStageRowBytes;
}

// Iterates over the stages of a block's items, every `step`th of all.
struct StageCursor {
  int item;
  int stage;  // in [0, count)
  TALON_HOST_DEVICE constexpr void Advance(int count, int step) {
    if (++stage < count) return;
    stage = 0;
    item += step;
  }
};

// How a GEMM runs.
struct WgmmaPlan {
  int outputs = 0;             // per tile
  int segments = 1;            // of the inputs
  bool splits = false;         // a block for each segment (split-K), else one for all
  int ring_bytes = 200 << 10;  // leaves room for a small kernel beside a block
};

// Number of stages that fit the ring.
constexpr int RingStages(const WgmmaPlan& plan, int stage_rows) {
  const int stages = plan.ring_bytes / StageBytes(plan.outputs, stage_rows);
  return stages < kMaxRing ? stages : kMaxRing;
}

// Dynamic shared memory: the ring, and padding to align it.
constexpr int WgmmaSharedBytes(const WgmmaPlan& plan, int stage_rows) {
  return RingStages(plan, stage_rows) * StageBytes(plan.outputs, stage_rows) + kRingAlignment;
}

// Cost estimate, in weight rows that the busiest block reads per stage. Reading x (24), the latency
// of a stage's wgmmas (80) and adding the splits (930 and 185 for each) are included; the constants
// are fitted to an H200.
constexpr int64_t WgmmaCost(int tiles, int stages, int outputs, int splits, int blocks) {
  const int64_t rounds = CeilDiv(int64_t{tiles} * splits, blocks);
  const int block_stages = CeilDiv(stages, splits);
  const int stage_cost = outputs + 24 > 80 ? outputs + 24 : 80;
  return rounds * block_stages * stage_cost + (splits > 1 ? 930 + 185 * splits : 0);
}

// The cheapest tile for `row_tiles` tiles of rows. `halves`: a tile is two equal parts, each of
// whole groups of eight rows. The blocks of a split-K tile wait for each other, so all of them must
// be resident; if that holds for no tile, the result has no outputs.
constexpr WgmmaPlan ChooseWgmmaTile(int outputs, int stages, int row_tiles, int splits, int blocks,
                                    bool halves, int64_t* best_cost) {
  WgmmaPlan best{.segments = splits, .splits = splits > 1};
  for (const int tile : kWgmmaOutputs) {
    const int tiles = CeilDiv(outputs, tile) * row_tiles;
    if (halves && tile % 16 != 0) continue;
    if (splits > 1 && tiles * splits > blocks) continue;
    const int64_t cost = WgmmaCost(tiles, stages, tile, splits, blocks);
    if (best.outputs != 0 && cost >= *best_cost) continue;
    best.outputs = tile;
    *best_cost = cost;
  }
  return best;
}

// The plan of a GEMM on a device where `blocks` blocks are resident.
constexpr WgmmaPlan ChooseWgmmaPlan(int outputs, int stages, int rows, int blocks, bool halves) {
  constexpr int kMinStages = 4;
  constexpr int kTileRows = kMaxGroups * kGroupRows;
  WgmmaPlan best;
  int64_t best_cost = 0;
  for (const int splits : kWgmmaSplits) {
    if (splits > 1 && stages < splits * kMinStages) continue;
    int64_t cost = 0;
    const WgmmaPlan plan = ChooseWgmmaTile(outputs, stages, 1, splits, blocks, halves, &cost);
    if (plan.outputs == 0 || (best.outputs != 0 && cost >= best_cost)) continue;
    best = plan;
    best_cost = cost;
  }
  if (best.segments > 1) {
    if (rows <= kTileRows) return best;
    return {.outputs = kSegmentedOutputs, .segments = best.segments};
  }
  const int row_tiles = CeilDiv(rows, kTileRows);
  return ChooseWgmmaTile(outputs, stages, row_tiles, 1, blocks, halves, &best_cost);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
