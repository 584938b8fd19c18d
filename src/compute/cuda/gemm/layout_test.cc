#include "compute/cuda/gemm/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace talon::cuda {
namespace {

// A stage whose elements are the numbers of their inputs, so that a test sees which weights and
// inputs are multiplied.
template <typename Tile>
struct Stage {
  using Element = std::conditional_t<Tile::kInt8, uint8_t, uint16_t>;
  std::vector<uint8_t> shared = std::vector<uint8_t>(Tile::kStageBytes, 0xEE);
  std::vector<Element> weights = std::vector<Element>(Tile::kOutputs * Tile::kStageCols);
  std::vector<uint16_t> x = std::vector<uint16_t>(Tile::kRows * Tile::kStageCols);
};

// Copies rows as the threads of a block do in StageLoader.
template <int Rows, int RowBytes, int Threads, typename Offset>
void CopyRows(const void* from, Offset&& offset, std::vector<uint8_t>* shared) {
  using Shape = CopyShape<Rows, RowBytes, Threads>;
  std::set<int> written;
  for (int thread = 0; thread < Threads; ++thread) {
    const int row = thread / Shape::kRowChunks;
    const int chunk = thread % Shape::kRowChunks;
    if (!Shape::kAllThreads && row >= Rows) continue;
    for (int i = 0; i < Shape::kLoads; ++i) {
      const int to = offset(row, chunk) + i * Shape::kRowStep * RowBytes;
      EXPECT_EQ(to, offset(row + i * Shape::kRowStep, chunk));
      EXPECT_TRUE(written.insert(to).second);
      const int source = (row + i * Shape::kRowStep) * RowBytes + chunk * kChunkBytes;
      std::memcpy(shared->data() + to, static_cast<const uint8_t*>(from) + source, kChunkBytes);
    }
  }
  EXPECT_EQ(static_cast<int>(written.size()), Rows * RowBytes / kChunkBytes);
}

template <typename Tile>
Stage<Tile> FilledStage() {
  Stage<Tile> stage;
  for (int o = 0; o < Tile::kOutputs; ++o) {
    for (int k = 0; k < Tile::kStageCols; ++k) {
      stage.weights[o * Tile::kStageCols + k] = static_cast<uint8_t>(o * 37 + k * 11 + o * k);
    }
  }
  for (int r = 0; r < Tile::kRows; ++r) {
    for (int k = 0; k < Tile::kStageCols; ++k) {
      stage.x[r * Tile::kStageCols + k] = static_cast<uint8_t>(r * 53 + k * 7 + r * k);
    }
  }
  CopyRows<Tile::kOutputs, Tile::kWeightRowBytes, Tile::kThreads>(
      stage.weights.data(), Tile::WeightOffset, &stage.shared);
  CopyRows<Tile::kRows, Tile::kOperandRowBytes, Tile::kThreads>(stage.x.data(), Tile::OperandOffset,
                                                                &stage.shared);
  return stage;
}

// The registers of one mma.sync m16n8k16, as [lane][element].
struct Fragments {
  uint16_t a[32][8];
  uint16_t b[32][4];
};

// D[16, 8] += A * B by PTX's definition of where the elements are.
void MultiplyAdd(const Fragments& f, int64_t (*sum)[8]) {
  uint16_t a[16][16];
  uint16_t b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 8; ++i) {
      a[(i / 2 % 2) * 8 + g][(i / 4) * 8 + t * 2 + i % 2] = f.a[lane][i];
    }
    for (int i = 0; i < 4; ++i) b[(i / 2) * 8 + t * 2 + i % 2][g] = f.b[lane][i];
  }
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < 16; ++k) sum[m][n] += int64_t{a[m][k]} * b[k][n];
    }
  }
}

// Fragments that WarpAccumulator loads from the stage for step `step` of its slice.
template <typename Tile>
Fragments LoadFragments(const Stage<Tile>& stage, int slice, int output, int row, int step) {
  Fragments f;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      typename Stage<Tile>::Element w[kChunkBytes / sizeof(typename Stage<Tile>::Element)];
      const int offset = Tile::WeightOffset(output + g, slice * 4 + t);
      std::memcpy(w, stage.shared.data() + offset + half * 8 * Tile::kWeightRowBytes, sizeof(w));
      for (int i = 0; i < 4; ++i) f.a[lane][i / 2 * 4 + half * 2 + i % 2] = w[step * 4 + i];
    }
    const int chunk = Tile::kInt8 ? slice * 8 + t * 2 : slice * 4 + t;
    int offset = Tile::OperandOffset(g, chunk) + row * Tile::kOperandRowBytes;
    if (step >= 2) offset ^= kChunkBytes;
    std::memcpy(f.b[lane], stage.shared.data() + offset + step % 2 * 8, 8);
  }
  return f;
}

template <typename Tile>
class GemmLayoutTest : public testing::Test {};

constexpr int kBudget = kHalfMultiprocessor;
using Tiles = testing::Types<StreamTile<2, 4, 2, 8, kBudget>, StreamTile<2, 4, 2, 1, kBudget>,
                             StreamTile<2, 2, 4, 2, kBudget>, StreamTile<2, 1, 8, 1, kBudget>,
                             StreamTile<2, 1, 8, 2, kBudget>, StreamTile<1, 4, 2, 8, kBudget>,
                             StreamTile<1, 4, 2, 2, kBudget>, StreamTile<1, 2, 4, 1, kBudget>>;
TYPED_TEST_SUITE(GemmLayoutTest, Tiles);

TYPED_TEST(GemmLayoutTest, WarpsOfABlockMultiplyTheStage) {
  using Tile = TypeParam;
  const Stage<Tile> stage = FilledStage<Tile>();
  constexpr int kSteps = Tile::kInt8 ? 4 : 2;
  for (int output = 0; output < Tile::kOutputs; output += 16) {
    for (int row = 0; row < Tile::kRows; row += 8) {
      int64_t sum[16][8] = {};
      for (int slice = 0; slice < Tile::kSlices; ++slice) {
        for (int step = 0; step < kSteps; ++step) {
          MultiplyAdd(LoadFragments(stage, slice, output, row, step), sum);
        }
      }
      for (int m = 0; m < 16; ++m) {
        for (int n = 0; n < 8; ++n) {
          int64_t expected = 0;
          for (int k = 0; k < Tile::kStageCols; ++k) {
            expected += int64_t{stage.weights[(output + m) * Tile::kStageCols + k]} *
                        stage.x[(row + n) * Tile::kStageCols + k];
          }
          ASSERT_EQ(sum[m][n], expected) << "output " << output + m << " row " << row + n;
        }
      }
    }
  }
}

// Loads of 16 bytes per lane run in four phases of eight lanes, each over all 32 banks.
template <typename Offset>
void ExpectNoBankConflicts(Offset&& offset) {
  for (int first = 0; first < 32; first += 8) {
    std::set<int> banks;
    for (int lane = first; lane < first + 8; ++lane) banks.insert(offset(lane) / 16 % 8);
    EXPECT_EQ(banks.size(), 8u);
  }
}

TYPED_TEST(GemmLayoutTest, LanesReadDifferentBanks) {
  using Tile = TypeParam;
  for (int slice = 0; slice < Tile::kSlices; ++slice) {
    ExpectNoBankConflicts(
        [&](int lane) { return Tile::WeightOffset(lane / 4, slice * 4 + lane % 4); });
    ExpectNoBankConflicts([&](int lane) {
      const int chunk = Tile::kInt8 ? slice * 8 + lane % 4 * 2 : slice * 4 + lane % 4;
      return Tile::OperandOffset(lane / 4, chunk);
    });
  }
  std::set<int> banks;  // banks of the accumulators, four bytes per lane
  for (int lane = 0; lane < 32; ++lane) {
    banks.insert(Tile::AccumulatorIndex(0, lane % 4 * 2, lane / 4) % 32);
  }
  EXPECT_EQ(banks.size(), 32u);
}

TYPED_TEST(GemmLayoutTest, StageAndAccumulatorsFitSharedMemory) {
  using Tile = TypeParam;
  EXPECT_LE(Tile::kSharedBytes, kBudget);
  EXPECT_LE(
      (Tile::AccumulatorIndex(Tile::kSlices - 1, Tile::kRows - 1, Tile::kOutputs - 1) + 1) * 4,
      Tile::kSharedBytes);
  EXPECT_EQ(Tile::kStageBytes % 128, 0);
  EXPECT_EQ(PaddedCols(1, Tile::kInt8 ? 1 : 2) % (Tile::kSlices == 8 ? 1 : Tile::kStageCols), 0);
  if (Tile::kInt8) {
    EXPECT_EQ(Tile::ScaleOffset(Tile::kStageGroups - 1, Tile::kOutputs - 1) + 4, Tile::kStageBytes);
  }
}

TEST(ChooseSplitsTest, FillsTheDeviceAndCoversEveryStage) {
  EXPECT_EQ(ChooseSplits(32, 64, 200), 6);
  EXPECT_EQ(ChooseSplits(224, 64, 200), 1);
  EXPECT_EQ(ChooseSplits(1, 1000, 200), kMaxSplits);
  EXPECT_EQ(ChooseSplits(1, 3, 200), 1);
  EXPECT_EQ(ChooseSplits(1, 8, 200), 2);
  for (const int stages : {1, 7, 64, 224}) {
    for (int splits = 1; splits <= kMaxSplits; ++splits) {
      EXPECT_EQ(SplitBegin(stages, splits, 0), 0);
      EXPECT_EQ(SplitBegin(stages, splits, splits), stages);
    }
  }
}

}  // namespace
}  // namespace talon::cuda
