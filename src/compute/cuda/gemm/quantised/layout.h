// How quantised weights lie in device memory, and how a GEMM with them runs: host integers, so that
// a test without a GPU can verify them.
//
// A weight is a matrix of codes (int8, FP8 e4m3 or int4), each of which stands for a number that
// bf16 holds: int8 and FP8 codes for themselves, with one float scale for an output that the
// epilogue applies; int4 codes, and FP8 codes of blocks, for (code - zero) * scale of their group
// of inputs, rounded to bf16. A GEMM multiplies those numbers as the bf16 GEMM (gemm/wgmma.h)
// would, in the same order: its bits are those of the expanded weight, whichever of the two kernels
// runs.
//
// Codes lie in tiles of 64 outputs and 128 inputs, output tile after output tile, so that stages
// are contiguous. A tile holds its codes as the lanes of wgmma's left operand take them from
// registers, unit by unit of eight outputs, then the scales of its groups, [64][sets] bf16, and
// their zeros where there are any.
#ifndef TALON_COMPUTE_CUDA_GEMM_QUANTISED_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_QUANTISED_LAYOUT_H_

#include <array>
#include <cstdint>

#include "base/math.h"
#include "compute/cuda/gemm/wgmma_layout.h"
#include "compute/dtype.h"
#include "compute/host_device.h"

namespace talon::cuda {

inline constexpr int kCodeTileRows = 64;  // outputs: the rows of wgmma's left operand
inline constexpr int kCodeTileCols = 128;
inline constexpr int kCodeUnitRows = 8;
inline constexpr int kCodeTileUnits = kCodeTileRows / kCodeUnitRows;
// Rows of x for which kernels are compiled.
inline constexpr std::array kCodeRowTiles = {8, 16, 32, 64, 128};
// Consumer warpgroups of a block at most: as many as have registers for their accumulators.
inline constexpr int kCodeGroups = 4;
TALON_HOST_DEVICE constexpr int MostCodeGroups(int row_tile) { return row_tile > 64 ? 2 : 4; }

// What the tiles of a weight hold.
struct CodeTiles {
  int bits = 8;
  int sets = 0;        // scales of an output in a tile: 0, 1, or 4 for groups of 32 or 64 inputs
  bool zeros = false;  // each group has a zero

  TALON_HOST_DEVICE constexpr int code_bytes() const {
    return kCodeTileRows * kCodeTileCols * bits / 8;
  }
  TALON_HOST_DEVICE constexpr int unit_bytes() const { return code_bytes() / kCodeTileUnits; }
  TALON_HOST_DEVICE constexpr int bytes() const {
    return code_bytes() + sets * kCodeTileRows * 2 * (zeros ? 2 : 1);
  }
};

// A value of a tile: the 32-bit word that holds its code and the code's first bit.
struct CodePlace {
  int word = 0;
  int bit = 0;
};

// In a unit, lane g * 4 + t has of row g the inputs 2t, 2t + 1, 2t + 8 and 2t + 9 of each of eight
// steps of 16. The loads of a warp are 16 bytes per lane. Two codes of a pair lie 16 bits apart:
// shifted and masked together, they become a pair of bf16.
TALON_HOST_DEVICE constexpr CodePlace PlaceOfCode(int bits, int row, int col) {
  const int step = col / kWgmmaStepCols, k = col % kWgmmaStepCols;
  const int lane = row % kCodeUnitRows * 4 + k % 8 / 2;
  const int pair = k / 8, high = k % 2;
  const int unit_words = kCodeUnitRows * kCodeTileCols * bits / 32;
  const int unit = row / kCodeUnitRows * unit_words;
  if (bits == 8) return {unit + step / 4 * 128 + lane * 4 + step % 4, high * 16 + pair * 8};
  return {unit + lane * 4 + step / 2, high * 16 + (step % 2 * 2 + pair) * 4};
}

// The input of the tile whose code is number `index` (of 32 / bits) in the words of row `row` that
// are `word` (of kCodeTileCols * bits / 32) in order: the inverse of PlaceOfCode.
TALON_HOST_DEVICE constexpr int ColumnOfCode(int bits, int word, int index) {
  const int t = word % 4, high = index % 2, field = index / 2;
  const int step = bits == 8 ? word / 4 : word / 4 * 2 + field / 2;
  return step * kWgmmaStepCols + field % 2 * 8 + t * 2 + high;
}

// How a GEMM with codes runs.
struct CodePlan {
  int groups = 1;       // consumer warpgroups of a block, 64 outputs each
  int segments = 1;     // segments of the inputs, each with its blocks (split-K)
  int row_tile = 8;     // rows of x in a stage; a GEMM of more rows runs several times
  int stage_tiles = 1;  // tiles of each warpgroup per stage
  int stage_bytes = 0;
  int ring = 0;  // stages
};

constexpr int CodeStageBytes(const CodeTiles& tiles, int groups, int row_tile, int stage_tiles) {
  const int stored = stage_tiles * (row_tile * 2 * kSliceRowBytes + groups * tiles.bytes());
  return RoundUp(stored, kRingAlignment);
}

// The warpgroups of a block that leave the busiest SM the fewest tiles; 0 where the blocks of a
// tile, which wait for each other, cannot all be resident.
constexpr int ChooseCodeGroups(int output_tiles, int segments, int row_tile, int blocks,
                               bool halves) {
  int best = 0;
  int64_t least = 0;
  for (const int groups : {4, 2, 1}) {
    if (groups > MostCodeGroups(row_tile) || (halves && groups == 1)) continue;
    const int items = CeilDiv(output_tiles, groups) * segments;
    if (segments > 1 && items > blocks) continue;
    const int64_t cost = int64_t{CeilDiv(items, blocks)} * groups;
    if (best != 0 && cost >= least) continue;
    best = groups;
    least = cost;
  }
  return best;
}

// The plan of a GEMM. `segments` are those of the bf16 GEMM. `halves`: SwiGLU, for which a block
// takes as many outputs of the gate as of up.
constexpr CodePlan ChooseCodePlan(const CodeTiles& tiles, int outputs, int col_tiles, int segments,
                                  int rows, int blocks, bool halves) {
  constexpr int kRingBytes = 200 << 10, kMostStageBytes = kRingBytes / 4;
  CodePlan plan{.groups = 0, .segments = segments};
  for (const int tile : kCodeRowTiles) {
    const int groups =
        ChooseCodeGroups(CeilDiv(outputs, kCodeTileRows), segments, tile, blocks, halves);
    if (groups == 0) break;
    plan.groups = groups;
    plan.row_tile = tile;
    if (tile >= rows) break;
  }
  plan.stage_tiles = 1;
  for (const int count : {4, 2}) {
    bool fits = CodeStageBytes(tiles, plan.groups, plan.row_tile, count) <= kMostStageBytes;
    for (int segment = 1; segment <= segments; ++segment) {
      fits = fits && SegmentBegin(2 * col_tiles, segments, segment) % (2 * count) == 0;
    }
    if (!fits) continue;
    plan.stage_tiles = count;
    break;
  }
  plan.stage_bytes = CodeStageBytes(tiles, plan.groups, plan.row_tile, plan.stage_tiles);
  plan.ring = kRingBytes / plan.stage_bytes < kMaxRing ? kRingBytes / plan.stage_bytes : kMaxRing;
  return plan;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_QUANTISED_LAYOUT_H_
