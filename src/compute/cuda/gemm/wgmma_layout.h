// Shape and index arithmetic of the wgmma GEMM (gemm/wgmma.cuh): host integers, so that a test
// without a GPU can verify them.
//
// A block takes a tile of outputs for 64 or 128 rows of x and walks along the inputs (K) in slices,
// of which a stage holds one or more: the producer's work for a stage is the same however large it
// is, so narrow tiles have longer stages. One row of weights or of x is 128 bytes of a slice: 64
// inputs of 16 bits, or 128 of FP8. TMA stores those rows with the 128-byte swizzle that wgmma
// reads. Where a GEMM has too few outputs for all SMs, its inputs are cut into segments, whose sums
// are added in order: by several blocks that share a tile (split-K) or, where the rows are many, by
// one block that takes one segment after the other. The segments depend on the shape of the weights
// alone, of all ranks' together; tiles do not change the order of additions.
//
// Tensor cores keep about 14 bits of a sum of FP8 products. So the sum of a slice starts at zero,
// and is added in float32, times the scales, to those of the slices before it (gemm/wgmma_fp8.cuh).
//
// A stage holds the existing rows of x, in groups of eight, slice by slice, followed by the
// weights and, for FP8, by float scales: those of the rows, slice by slice, then those of the
// outputs where groups of inputs have some. wgmma always reads 64 rows: after the last row of x it
// reads other rows of the stage, into accumulators that are not stored.
#ifndef TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
#define TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_

#include <array>
#include <cstdint>
#include <span>

#include "base/math.h"
#include "compute/cuda/gemm/layout.h"
#include "compute/fp8.h"
#include "compute/host_device.h"

namespace talon::cuda {

inline constexpr int kGroupRows = 64;       // rows of x per warpgroup
inline constexpr int kWgmmaSliceCols = 64;  // inputs of 16 bits
inline constexpr int kSliceRowBytes = 2 * kWgmmaSliceCols;
inline constexpr int kFp8SliceCols = kSliceRowBytes;
inline constexpr int kWgmmaStepCols = 16;  // inputs (K) of one instruction, twice as many of FP8
inline constexpr int kMaxGroups = 2;
// Threads beside those of the consumer warpgroups. For FP8 they are a warpgroup, too, which
// releases registers that the consumers allocate.
constexpr int ProducerThreads(bool fp8) { return fp8 ? 128 : 32; }
inline constexpr int kMaxRing = 16;  // stages in shared memory
inline constexpr int kRingAlignment = 1024;

// Outputs per tile for which kernels are compiled.
inline constexpr std::array kWgmmaOutputs = {32, 48, 64, 96, 128, 192, 224, 248, 256};
// The tile whose kernel can add segments of the inputs one after the other.
inline constexpr int kSegmentedOutputs = 128;
// FP8, and FP8 whose groups of inputs have scales, which take registers too.
inline constexpr std::array kFp8Outputs = {32, 48, 64, 96, 112, 128, 192, 224, 256};
inline constexpr std::array kFp8GroupOutputs = {32, 48, 64, 96, 112, 128};
// The tile whose SwiGLU epilogue can round to FP8: it has a group of the next GEMM's inputs.
inline constexpr std::array kRoundingOutputs = {2 * kFp8Group};
inline constexpr std::array kWgmmaSplits = {1, 2, 4, 8};
static_assert(kWgmmaSplits.back() <= kMaxSplits);

// wgmma matrix descriptor of rows of a slice: `address` in shared memory is a multiple of
// kRingAlignment. Groups of eight rows, whose 16-byte chunks are swizzled, lie 1024 bytes apart.
// Each step adds kDescriptorStep.
TALON_HOST_DEVICE constexpr uint64_t MatrixDescriptor(uint32_t address) {
  constexpr uint64_t kLeadingOffset = 1;  // ignored for K-major swizzled layouts
  constexpr uint64_t kEightRows = 8 * kSliceRowBytes / 16;
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
// The first row of x in the stages of a tile whose own rows start at `tile_row`. TMA is slow in
// filling rows behind the last one with zeros: instead of many of them the last tile's stages have
// rows of the tile before, whose outputs it does not store.
TALON_HOST_DEVICE constexpr int FirstStageRow(int tile_row, int rows, int stage_rows) {
  const int last = RoundUp(rows, 8) - stage_rows;
  return tile_row < last ? tile_row : last;
}
// `scales`: floats for a slice.
TALON_HOST_DEVICE constexpr int StageBytes(int outputs, int stage_rows, int slices,
                                           int scales = 0) {
  const int stored = slices * ((outputs + stage_rows) * kSliceRowBytes + scales * 4);
  const int rows_read = (slices - 1) * stage_rows + (stage_rows > kGroupRows ? 2 : 1) * kGroupRows;
  const int read = rows_read * kSliceRowBytes;
  return RoundUp(stored > read ? stored : read, kRingAlignment);
}

// The first slice of a segment of the inputs. Slices come in pairs (PaddedCols), which are not cut.
TALON_HOST_DEVICE constexpr int SegmentBegin(int slices, int segments, int segment) {
  return SplitBegin(slices / 2, segments, segment) * 2;
}

// Iterates over the stages of a block's items, every `step`th of all.
struct StageCursor {
  int item;
  int slice;  // the stage's first, in [0, count)
  TALON_HOST_DEVICE constexpr void Advance(int stage_slices, int count, int step) {
    slice += stage_slices;
    if (slice < count) return;
    slice = 0;
    item += step;
  }
};

// How a GEMM runs.
struct WgmmaPlan {
  int outputs = 0;             // per tile
  int segments = 1;            // segments of the inputs
  bool splits = false;         // a block for each segment (split-K), else one for all
  int ring_bytes = 200 << 10;  // leaves room for a small kernel beside a block
};

// Most slices per stage for which kernels are compiled.
TALON_HOST_DEVICE constexpr int MostSlices(int outputs) {
  if (outputs <= 64) return 4;
  return outputs <= 128 ? 2 : 1;
}
// Slices per stage: as many as make stages of at most so many bytes and divide every segment.
constexpr int StageSlices(const WgmmaPlan& plan, int slices, int stage_rows, int scales = 0) {
  const int most_bytes = scales > 0 ? 50 << 10 : 36 << 10;
  for (int count = MostSlices(plan.outputs); count > 1; count /= 2) {
    bool divides = StageBytes(plan.outputs, stage_rows, count, scales) <= most_bytes;
    for (int segment = 1; segment <= plan.segments; ++segment) {
      divides = divides && SegmentBegin(slices, plan.segments, segment) % count == 0;
    }
    if (divides) return count;
  }
  return 1;
}

// Number of stages of `stage_bytes` that fit the ring.
constexpr int RingStages(const WgmmaPlan& plan, int stage_bytes) {
  const int stages = plan.ring_bytes / stage_bytes;
  return stages < kMaxRing ? stages : kMaxRing;
}

// Dynamic shared memory: the ring, and padding to align it.
constexpr int WgmmaSharedBytes(const WgmmaPlan& plan, int stage_bytes) {
  return RingStages(plan, stage_bytes) * stage_bytes + kRingAlignment;
}

// Cost estimate, in weight rows that the busiest block reads per slice. Reading x (24), the latency
// of a slice's wgmmas (80) and adding the splits (930 and 185 for each) are included; the constants
// are fitted to an H200.
constexpr int64_t WgmmaCost(int tiles, int slices, int outputs, int splits, int blocks) {
  const int64_t rounds = CeilDiv(int64_t{tiles} * splits, blocks);
  const int block_slices = CeilDiv(slices, splits);
  const int slice_cost = outputs + 24 > 80 ? outputs + 24 : 80;
  return rounds * block_slices * slice_cost + (splits > 1 ? 930 + 185 * splits : 0);
}

// A weight, as plans see it.
struct WgmmaShape {
  int outputs = 0;
  int slices = 0;
  bool halves = false;                         // a tile is two equal parts of whole groups of
                                               // eight outputs: gate and up
  std::span<const int> tiles = kWgmmaOutputs;  // there are kernels for these
};

// The cheapest tile for `row_tiles` tiles of rows. The blocks of a split-K tile wait for each
// other, so all of them must be resident; if that holds for no tile, the result has no outputs.
constexpr WgmmaPlan ChooseWgmmaTile(const WgmmaShape& shape, int row_tiles, int splits, int blocks,
                                    int64_t* best_cost) {
  WgmmaPlan best{.segments = splits, .splits = splits > 1};
  for (const int tile : shape.tiles) {
    const int tiles = CeilDiv(shape.outputs, tile) * row_tiles;
    if (shape.halves && tile % 16 != 0) continue;
    if (splits > 1 && tiles * splits > blocks) continue;
    const int64_t cost = WgmmaCost(tiles, shape.slices, tile, splits, blocks);
    if (best.outputs != 0 && cost >= *best_cost) continue;
    best.outputs = tile;
    *best_cost = cost;
  }
  return best;
}

// The segments of a weight, that of all ranks, on a device with as many SMs as `blocks`.
constexpr int ChooseSegments(const WgmmaShape& whole, int blocks) {
  constexpr int kMinSlices = 4;
  WgmmaPlan best;
  int64_t best_cost = 0;
  for (const int splits : kWgmmaSplits) {
    if (splits > 1 && whole.slices < splits * kMinSlices) continue;
    int64_t cost = 0;
    const WgmmaPlan plan = ChooseWgmmaTile(whole, 1, splits, blocks, &cost);
    if (plan.outputs == 0 || (best.outputs != 0 && cost >= best_cost)) continue;
    best = plan;
    best_cost = cost;
  }
  return best.segments;
}

// The plan of a GEMM with these segments where `blocks` blocks are resident.
constexpr WgmmaPlan ChooseWgmmaPlan(const WgmmaShape& shape, int segments, int rows, int blocks) {
  constexpr int kTileRows = kMaxGroups * kGroupRows;
  int64_t cost = 0;
  if (segments > 1 && rows <= kTileRows) {
    const WgmmaPlan plan = ChooseWgmmaTile(shape, 1, segments, blocks, &cost);
    if (plan.outputs > 0) return plan;
  }
  if (segments > 1) return {.outputs = kSegmentedOutputs, .segments = segments};
  return ChooseWgmmaTile(shape, CeilDiv(rows, kTileRows), 1, blocks, &cost);
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WGMMA_LAYOUT_H_
