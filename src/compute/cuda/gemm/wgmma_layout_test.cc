#include "compute/cuda/gemm/wgmma_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/math.h"

namespace talon::cuda {
namespace {

constexpr int kH200 = 132;  // multiprocessors

// All tiles that there are kernels for.
std::set<int> AllTiles() {
  std::set<int> tiles(kWgmmaOutputs.begin(), kWgmmaOutputs.end());
  tiles.insert(kFp8Outputs.begin(), kFp8Outputs.end());
  tiles.insert(kFp8GroupOutputs.begin(), kFp8GroupOutputs.end());
  return tiles;
}

// Model of shared memory as TMA writes and wgmma reads it, by their documentation.
class SharedMemory {
 public:
  // A box of `slices` slices of `rows` rows of 64 elements, element (r, c) being value(r, c), with
  // a 128-byte swizzle by the address.
  template <typename F>
  void TmaLoadSlices(uint32_t address, int rows, int slices, F&& value) {
    ASSERT_EQ(address % 1024, 0u);
    for (int i = 0; i < slices * rows * kWgmmaSliceCols; ++i) {
      const int c = i % kWgmmaSliceCols;
      const int slice = i / kWgmmaSliceCols / rows;
      const uint16_t element = value(i / kWgmmaSliceCols % rows, slice * kWgmmaSliceCols + c);
      const uint32_t dense = address + i * 2;
      std::memcpy(bytes_.data() + (dense ^ (dense >> 7 & 7) << 4), &element, 2);
    }
  }

  // Element (row, k) of a K-major matrix that a descriptor names.
  uint16_t Read(uint64_t descriptor, int row, int k) const {
    EXPECT_EQ(descriptor >> 62, 1u);      // 128-byte swizzle
    EXPECT_EQ(descriptor >> 49 & 7, 0u);  // the pattern starts at multiples of 1024 bytes
    const uint32_t start = (descriptor & 0x3FFF) << 4;
    const uint32_t stride = (descriptor >> 32 & 0x3FFF) << 4;
    const uint32_t logical = start + row / 8 * stride + row % 8 * 128 + k * 2;
    uint16_t element;
    std::memcpy(&element, bytes_.data() + (logical ^ (logical >> 7 & 7) << 4), 2);
    return element;
  }

 private:
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(256 << 10, 0xEE);
};

uint16_t XAt(int row, int k) { return static_cast<uint16_t>(row * 53 + k * 7 + row * k); }
uint16_t WAt(int output, int k) { return static_cast<uint16_t>(output * 37 + k * 11 + output * k); }

TEST(WgmmaLayoutTest, StepsReadTheStageThatTheCopiesFilled) {
  constexpr uint32_t kGroupBytes = kGroupRows * kSliceRowBytes;
  for (const int outputs : AllTiles()) {
    for (const int rows : {1, 13, 64, 65, 128}) {
      for (int slices = 1; slices <= MostSlices(outputs); slices *= 2) {
        SharedMemory memory;
        const int stage_rows = StageRows(rows, rows > kGroupRows ? 2 : 1);
        const uint32_t stage = 2048 + StageBytes(outputs, stage_rows, slices);  // the second
        memory.TmaLoadSlices(stage, stage_rows, slices, XAt);
        const uint32_t weights = stage + slices * stage_rows * kSliceRowBytes;
        memory.TmaLoadSlices(weights, outputs, slices, WAt);
        for (int col = 0; col < slices * kWgmmaSliceCols; ++col) {
          const int slice = col / kWgmmaSliceCols;
          const uint64_t step = col % kWgmmaSliceCols / kWgmmaStepCols * kDescriptorStep;
          const int k = col % kWgmmaStepCols;
          const uint32_t x_slice = stage + slice * stage_rows * kSliceRowBytes;
          for (int row = 0; row < rows; ++row) {
            const uint64_t x = MatrixDescriptor(x_slice + row / kGroupRows * kGroupBytes);
            ASSERT_EQ(memory.Read(x + step, row % kGroupRows, k), XAt(row, col));
          }
          const uint64_t w = MatrixDescriptor(weights + slice * outputs * kSliceRowBytes);
          for (int o = 0; o < outputs; ++o) ASSERT_EQ(memory.Read(w + step, o, k), WAt(o, col));
        }
      }
    }
  }
}

// wgmma reads 64 rows of x for each warpgroup, however few exist.
TEST(WgmmaLayoutTest, RowsOfAllWarpgroupsLieInTheStage) {
  for (const int outputs : AllTiles()) {
    for (int rows = 1; rows <= 128; ++rows) {
      const int groups = rows > kGroupRows ? 2 : 1;
      const int stage_rows = StageRows(rows, groups);
      EXPECT_GE(stage_rows, rows);
      EXPECT_LE(stage_rows, groups * kGroupRows);
      EXPECT_EQ(stage_rows * kSliceRowBytes % kRingAlignment, 0);
      for (const int slices : {1, 2, 4}) {
        const int last_slice = (slices - 1) * stage_rows * kSliceRowBytes;
        EXPECT_LE(last_slice + groups * kGroupRows * kSliceRowBytes,
                  StageBytes(outputs, stage_rows, slices));
      }
    }
  }
}

// Stages of a row tile have its rows, and at most seven behind the last one.
TEST(WgmmaLayoutTest, StagesHaveTheRowsOfTheirTile) {
  for (int rows = 1; rows <= 1000; ++rows) {
    const int groups = rows > kGroupRows ? 2 : 1;
    const int stage_rows = StageRows(rows, groups);
    for (int tile_row = 0; tile_row < rows; tile_row += groups * kGroupRows) {
      const int first = FirstStageRow(tile_row, rows, stage_rows);
      EXPECT_GE(first, 0);
      EXPECT_LE(first, tile_row);
      EXPECT_GE(first + stage_rows, std::min(tile_row + groups * kGroupRows, rows));
      EXPECT_LT(first + stage_rows, rows + 8);
      EXPECT_EQ(first % 8, 0);  // scales are loaded by 16 bytes
    }
  }
}

TEST(WgmmaLayoutTest, AccumulatorsOfAWarpgroupCoverTheTileOnce) {
  for (const int outputs : AllTiles()) {
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < outputs / 2; ++i) {
        const int row = AccumulatorRow(thread, i);
        const int output = AccumulatorOutput(thread, i);
        EXPECT_TRUE(row < kGroupRows && output < outputs);
        EXPECT_TRUE(seen.insert({row, output}).second);
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), kGroupRows * outputs);
  }
}

TEST(WgmmaLayoutTest, GateAndUpOfAColumnAreInOneThread) {
  for (const int outputs : AllTiles()) {
    if (outputs % 16 != 0) continue;
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < outputs / 4; ++i) {
        EXPECT_EQ(AccumulatorRow(thread, i), AccumulatorRow(thread, i + outputs / 4));
        EXPECT_EQ(AccumulatorOutput(thread, i) + outputs / 2,
                  AccumulatorOutput(thread, i + outputs / 4));
      }
    }
  }
}

TEST(WgmmaLayoutTest, RingIsAlignedAndFitsSharedMemory) {
  for (const int outputs : AllTiles()) {
    if (outputs % 16 == 0) {
      EXPECT_EQ(outputs / 2 * kSliceRowBytes % kRingAlignment, 0);
    }
    for (const int stage_rows : {8, 16, 64, 128}) {
      for (const int scales : {0, stage_rows, stage_rows + outputs}) {
        const WgmmaPlan plan = {.outputs = outputs};
        const int slices = StageSlices(plan, 64, stage_rows, scales);
        const int bytes = StageBytes(outputs, stage_rows, slices, scales);
        EXPECT_GE(bytes, slices * ((stage_rows + outputs) * kSliceRowBytes + scales * 4));
        EXPECT_EQ(bytes % kRingAlignment, 0);
        EXPECT_GE(RingStages(plan, bytes), 4);
        EXPECT_LE(RingStages(plan, bytes), kMaxRing);
        EXPECT_LE(WgmmaSharedBytes(plan, bytes), 202 << 10);
      }
    }
  }
}

TEST(WgmmaLayoutTest, CursorWalksEveryStageOfEveryItem) {
  StageCursor cursor = {.item = 1, .slice = 0};
  std::vector<std::pair<int, int>> seen;
  for (; cursor.item < 6; cursor.Advance(2, 6, 2)) seen.emplace_back(cursor.item, cursor.slice);
  const std::vector<std::pair<int, int>> expected = {{1, 0}, {1, 2}, {1, 4}, {3, 0}, {3, 2},
                                                     {3, 4}, {5, 0}, {5, 2}, {5, 4}};
  EXPECT_EQ(seen, expected);
}

// A stage lies in one segment, and narrow tiles have long stages.
TEST(WgmmaLayoutTest, StagesDivideTheSegments) {
  for (const int outputs : AllTiles()) {
    for (const int segments : kWgmmaSplits) {
      for (const int slices : {4, 16, 46, 64, 90, 224}) {
        const WgmmaPlan plan = {.outputs = outputs, .segments = segments};
        const int stage = StageSlices(plan, slices, 8);
        EXPECT_LE(stage, MostSlices(outputs));
        for (int s = 0; s <= segments; ++s) {
          EXPECT_EQ(SegmentBegin(slices, segments, s) % stage, 0);
        }
      }
    }
  }
  EXPECT_EQ(StageSlices({.outputs = 48}, 64, 8), 4);
  EXPECT_EQ(StageSlices({.outputs = 48}, 46, 8), 2);
  EXPECT_EQ(StageSlices({.outputs = 128, .segments = 4}, 64, 8), 2);
  EXPECT_EQ(StageSlices({.outputs = 224}, 64, 8), 1);
}

// On one rank.
WgmmaPlan PlanOfShape(const WgmmaShape& shape, int rows, int blocks) {
  return ChooseWgmmaPlan(shape, ChooseSegments(shape, blocks), rows, blocks);
}

WgmmaPlan PlanOf(int outputs, int inputs, int rows, bool halves = false) {
  return PlanOfShape({outputs, inputs / kWgmmaSliceCols, halves}, rows, kH200);
}

WgmmaPlan Fp8PlanOf(int outputs, int inputs, int rows, bool halves = false) {
  return PlanOfShape({outputs, inputs / kFp8SliceCols, halves, kFp8Outputs}, rows, kH200);
}

void ExpectPlan(const WgmmaPlan& plan, int tile, int segments, bool splits) {
  EXPECT_EQ(plan.outputs, tile);
  EXPECT_EQ(plan.segments, segments);
  EXPECT_EQ(plan.splits, splits);
}

TEST(WgmmaPlanTest, BalancesTheMultiprocessors) {
  ExpectPlan(PlanOf(6144, 4096, 1), 48, 1, false);
  ExpectPlan(PlanOf(4096, 4096, 1), 128, 4, true);
  ExpectPlan(PlanOf(28672, 4096, 1), 224, 1, false);
  ExpectPlan(PlanOf(28672, 4096, 1, /*halves=*/true), 224, 1, false);
  ExpectPlan(PlanOf(4096, 14336, 1), 128, 4, true);
  ExpectPlan(PlanOf(128256, 4096, 1), 248, 1, false);
  ExpectPlan(PlanOf(6144, 4096, 512), 192, 1, false);
  ExpectPlan(PlanOf(4096, 14336, 512), 128, 4, false);
  ExpectPlan(Fp8PlanOf(6144, 4096, 1), 48, 1, false);
  ExpectPlan(Fp8PlanOf(4096, 4096, 1), 32, 1, false);
  ExpectPlan(Fp8PlanOf(28672, 4096, 1, /*halves=*/true), 224, 1, false);
  ExpectPlan(Fp8PlanOf(4096, 14336, 1), 128, 4, true);
  ExpectPlan(Fp8PlanOf(28672, 4096, 2048, /*halves=*/true), 256, 1, false);
}

// The order of additions is that of the segments.
TEST(WgmmaPlanTest, SegmentsDoNotDependOnTheRows) {
  for (const int outputs : {1, 7, 64, 500, 2048, 4096, 6144, 151936}) {
    for (const int stages : {2, 4, 30, 64, 224, 1000}) {
      for (const bool halves : {false, true}) {
        for (const std::span<const int> tiles :
             {std::span<const int>(kWgmmaOutputs), std::span<const int>(kFp8Outputs),
              std::span<const int>(kFp8GroupOutputs)}) {
          const WgmmaShape shape = {outputs, stages, halves, tiles};
          const int segments = PlanOfShape(shape, 1, kH200).segments;
          EXPECT_TRUE(segments == 1 || stages >= 4 * segments);
          for (const int rows : {2, 16, 64, 65, 128, 129, 500, 5000}) {
            const WgmmaPlan plan = PlanOfShape(shape, rows, kH200);
            EXPECT_EQ(plan.segments, segments);
            EXPECT_EQ(plan.splits, segments > 1 && rows <= 128);
            EXPECT_EQ(std::ranges::count(tiles, plan.outputs), 1);
            EXPECT_TRUE(!halves || plan.outputs % 16 == 0);
            EXPECT_TRUE(plan.segments == 1 || plan.splits || plan.outputs == kSegmentedOutputs);
          }
        }
      }
    }
  }
}

TEST(WgmmaPlanTest, BlocksThatWaitForEachOtherAllRun) {
  for (const int outputs : {64, 500, 2048, 4096, 6144, 9000}) {
    for (const int blocks : {8, 68, 108, 132}) {
      const WgmmaPlan plan = PlanOfShape({outputs, 64}, 1, blocks);
      const int tiles = CeilDiv(outputs, plan.outputs);
      EXPECT_TRUE(!plan.splits || tiles * plan.segments <= blocks) << outputs << " " << blocks;
    }
  }
}

// A rank has some of the outputs and, on a GPU that ranks share, some of the multiprocessors.
TEST(WgmmaPlanTest, PartsOfAWeightHaveTheSegmentsOfTheWhole) {
  for (const int whole : {200, 2048, 4096, 6144, 28672}) {
    for (const int slices : {4, 64, 224}) {
      const int segments = ChooseSegments({whole, slices}, kH200);
      for (const int ranks : {2, 4, 8}) {
        for (const int blocks : {kH200, kH200 / ranks}) {
          for (const int rows : {1, 128, 129}) {
            const int outputs = whole / ranks;
            const WgmmaPlan plan = ChooseWgmmaPlan({outputs, slices}, segments, rows, blocks);
            EXPECT_EQ(plan.segments, segments);
            EXPECT_GT(plan.outputs, 0);
            EXPECT_TRUE(!plan.splits || CeilDiv(outputs, plan.outputs) * plan.segments <= blocks);
            EXPECT_TRUE(plan.segments == 1 || plan.splits || plan.outputs == kSegmentedOutputs);
          }
        }
      }
    }
  }
  // Alone, the part would have others.
  EXPECT_EQ(ChooseSegments({6144, 64}, kH200), 1);
  EXPECT_GT(ChooseSegments({6144 / 4, 64}, kH200), 1);
}

}  // namespace
}  // namespace talon::cuda
