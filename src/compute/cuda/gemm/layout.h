// Shape and index arithmetic of the weight-streaming GEMM (gemm/stream.cuh): host integers, so that
// a test without a GPU can verify them.
//
// Weights are row-major [outputs, padded inputs], x is row-major too. A block takes a tile of
// outputs and walks along the inputs (K) in stages; a stage holds, for each output of the tile and
// each row of x, one piece of consecutive inputs. Warps divide the tile into panels of 32 outputs
// and the stage into slices of 64 weight bytes per output (split-K within the block).
//
// mma.sync m16n8k16 takes from lane (g = lane / 4, t = lane % 4) the inputs 2t, 2t+1, 2t+8 and 2t+9
// of rows g and g + 8 of the weights and of row g of x. The accumulators do not depend on which
// inputs these indices stand for as long as weights and x agree, so lane t takes consecutive
// inputs: 16 bytes of a weight row and the same inputs of x, each one load from shared memory that
// feeds two (16-bit) or four (int8) mma steps.
#ifndef TALON_COMPUTE_CUDA_GEMM_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "compute/host_device.h"

namespace talon::cuda {

inline constexpr int kScaleGroup = 128;   // inputs that share a scale in int8 weights
inline constexpr int kPanelOutputs = 32;  // per warp: two mma tiles of 16
inline constexpr int kSliceBytes = 64;    // bytes of each weight row that a warp takes from a stage
inline constexpr int kChunkBytes = 16;    // bytes of one load
inline constexpr int kMaxTileOutputs = 128;
inline constexpr int kMaxSplits = 8;
// Maximum blocks of a GEMM with split-K.
inline constexpr int kMaxSplitBlocks = 264;

// Columns to which rows of weights are padded, for elements of `element_bytes`: whole stages and
// whole groups of scales.
constexpr int PaddedCols(int cols, int element_bytes) {
  const int multiple = element_bytes == 1 ? 256 : element_bytes == 2 ? 128 : 4;
  return RoundUp(cols, multiple);
}

// Swizzle: position of 16-byte chunk `chunk` within row `row` in shared memory. Lanes read rows in
// pairs, four chunks of each at a time; shifting every second row puts the eight chunks in
// different banks.
constexpr int SwizzledChunk(int row, int chunk) { return chunk ^ ((row & 1) << 2); }
// The swizzle of x for int8 weights, where a lane takes two neighbouring chunks.
constexpr int SwizzledPairChunk(int row, int chunk) { return chunk ^ (row & 1); }

// Split-K: split s of `splits` takes stages [SplitBegin(s), SplitBegin(s + 1)).
constexpr int SplitBegin(int stages, int splits, int split) { return stages * split / splits; }

// Split-K factor: the number of blocks over which the inputs (K) of a tile are split, such that
// tiles * splits approaches `blocks` without exceeding it and each split has enough stages. Depends
// on the shape of the weights alone.
constexpr int ChooseSplits(int tiles, int stages, int blocks) {
  constexpr int kMinStages = 4;
  int splits = blocks / tiles;
  if (splits > stages / kMinStages) splits = stages / kMinStages;
  if (splits > kMaxSplits) splits = kMaxSplits;
  return splits < 1 ? 1 : splits;
}

// Sizes of a tile: `ElementBytes` 2 or 1 (int8), `Panels` x `Slices` warps, 8 * `RowTiles` rows of
// x, as many stages as `Budget` bytes of shared memory hold.
template <int ElementBytes, int Panels, int Slices, int RowTiles, int Budget>
struct StreamTile {
  static_assert(ElementBytes == 1 || ElementBytes == 2);
  static_assert(Slices % 2 == 0, "the swizzle shifts by four chunks");
  static constexpr bool kInt8 = ElementBytes == 1;
  static constexpr int kPanels = Panels;
  static constexpr int kSlices = Slices;
  static constexpr int kRowTiles = RowTiles;
  static constexpr int kThreads = 32 * Panels * Slices;
  static constexpr int kOutputs = kPanelOutputs * Panels;
  static constexpr int kRows = 8 * RowTiles;
  static constexpr int kWeightRowBytes = kSliceBytes * Slices;
  static constexpr int kStageCols = kWeightRowBytes / ElementBytes;
  static constexpr int kOperandRowBytes = 2 * kStageCols;
  static constexpr int kWeightBytes = kOutputs * kWeightRowBytes;
  static constexpr int kOperandBytes = kRows * kOperandRowBytes;
  static constexpr int kStageGroups = kInt8 ? kStageCols / kScaleGroup : 0;
  static constexpr int kScaleBytes = kStageGroups * kOutputs * 4;
  static constexpr int kStageBytes = kWeightBytes + kOperandBytes + kScaleBytes;
  static constexpr int kStages = Budget / kStageBytes < 8 ? Budget / kStageBytes : 8;
  static_assert(kStages >= 3);
  // Accumulators of the slices, [slices][rows][outputs], reuse the memory of the stages.
  static constexpr int kAccStride = kOutputs + 4;  // rows 2t of four lanes in different banks
  static constexpr int kAccBytes = kSlices * kRows * kAccStride * 4;
  static constexpr int kSharedBytes =
      kStages * kStageBytes > kAccBytes ? kStages* kStageBytes : kAccBytes;

  static constexpr int WeightOffset(int row, int chunk) {
    return row * kWeightRowBytes + SwizzledChunk(row, chunk) * kChunkBytes;
  }
  static constexpr int OperandOffset(int row, int chunk) {
    const int swizzled = kInt8 ? SwizzledPairChunk(row, chunk) : SwizzledChunk(row, chunk);
    return kWeightBytes + row * kOperandRowBytes + swizzled * kChunkBytes;
  }
  // Offset of the scale of output `output` of the tile in group `group` of the stage.
  static constexpr int ScaleOffset(int group, int output) {
    return kWeightBytes + kOperandBytes + (group * kOutputs + output) * 4;
  }
  static constexpr int AccumulatorIndex(int slice, int row, int output) {
    return (slice * kRows + row) * kAccStride + output;
  }
};

// How the threads of a block copy [Rows, RowBytes] of a stage: each thread copies the same column
// of 16-byte chunks in every stage, from every kRowStep-th row.
template <int Rows, int RowBytes, int Threads>
struct CopyShape {
  static constexpr int kRowChunks = RowBytes / kChunkBytes;
  static constexpr int kRowStep = Threads / kRowChunks;
  static constexpr int kLoads = CeilDiv(Rows, kRowStep);
  static_assert(kRowStep % 2 == 0, "a thread's rows are swizzled alike");
  static constexpr bool kAllThreads = Rows >= kRowStep;
  static_assert(!kAllThreads || Rows % kRowStep == 0);
};

// Shared memory per block such that two blocks fit an SM of sm_90 (1 KiB of each is reserved): with
// PDL the next GEMM prefetches its weights while this one ends.
inline constexpr int kHalfMultiprocessor = 112 * 1024;

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_LAYOUT_H_
