#include "compute/cuda/gemm/quantised/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace talon::cuda {
namespace {

class CodePlaces : public ::testing::TestWithParam<int> {};

TEST_P(CodePlaces, FillATile) {
  const int bits = GetParam();
  std::set<std::pair<int, int>> seen;
  for (int row = 0; row < kCodeTileRows; ++row) {
    for (int col = 0; col < kCodeTileCols; ++col) {
      const CodePlace place = PlaceOfCode(bits, row, col);
      EXPECT_TRUE(seen.insert({place.word, place.bit}).second) << row << ", " << col;
      EXPECT_LT(place.word * 4, CodeTiles{.bits = bits}.code_bytes());
      EXPECT_EQ(place.bit % bits, 0);
    }
  }
}

// What the packing kernel writes at once lies in one word, in the places that the others read.
TEST_P(CodePlaces, ColumnsOfAWordAreItsOwn) {
  const int bits = GetParam();
  std::set<int> columns;
  for (int word = 0; word < kCodeTileCols * bits / 32; ++word) {
    const int place = PlaceOfCode(bits, 11, ColumnOfCode(bits, word, 0)).word;
    std::set<int> used;
    for (int index = 0; index < 32 / bits; ++index) {
      const int col = ColumnOfCode(bits, word, index);
      EXPECT_TRUE(columns.insert(col).second);
      EXPECT_EQ(PlaceOfCode(bits, 11, col).word, place);
      used.insert(PlaceOfCode(bits, 11, col).bit);
    }
    EXPECT_EQ(static_cast<int>(used.size()), 32 / bits);
  }
}

// wgmma's left operand: lane g * 4 + t of a warp holds the inputs 2t, 2t + 1 and eight further on
// of row g. Its loads are 16 bytes (8 bits, four steps) or 8 bytes (4 bits) at the lane's place.
TEST_P(CodePlaces, AreTheLanesOwn) {
  const int bits = GetParam();
  for (int row = 0; row < kCodeTileRows; ++row) {
    for (int col = 0; col < kCodeTileCols; ++col) {
      const int lane = row % 8 * 4 + col % 8 / 2, step = col / 16;
      const int unit_words = CodeTiles{.bits = bits}.unit_bytes() / 4;
      const CodePlace place = PlaceOfCode(bits, row, col);
      const int in_unit = place.word - row / 8 * unit_words;
      if (bits == 8) {
        EXPECT_EQ(in_unit, (step / 4 * 32 + lane) * 4 + step % 4);
      } else {
        EXPECT_EQ(in_unit / 2, lane * 2 + step / 4);
        EXPECT_EQ(in_unit % 2, step / 2 % 2);
      }
      EXPECT_EQ(place.bit / 16, col % 2);  // the high half of a pair
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, CodePlaces, ::testing::Values(4, 8));

TEST(CodePlan, FitsEveryWeight) {
  constexpr int kBlocks = 132;
  for (const CodeTiles tiles : {CodeTiles{8, 0}, CodeTiles{8, 1}, CodeTiles{4, 1, true},
                                CodeTiles{4, 4}, CodeTiles{4, 4, true}}) {
    for (int outputs : {64, 75, 1024, 4096, 5120, 6144, 8192, 14336, 28672, 128256}) {
      for (int col_tiles : {1, 2, 7, 32, 40, 64, 112}) {
        for (int rows : {1, 8, 9, 60, 64, 65, 128, 200}) {
          for (const bool halves : {false, true}) {
            if (halves && outputs % (2 * kCodeTileCols) != 0) continue;
            const WgmmaShape shape = {outputs, 2 * col_tiles, halves};
            const int segments = ChooseSegments(shape, kBlocks);
            const CodePlan plan =
                ChooseCodePlan(tiles, outputs, col_tiles, segments, rows, kBlocks, halves);
            ASSERT_GT(plan.groups, 0) << outputs << " x " << col_tiles;
            EXPECT_LE(plan.groups, MostCodeGroups(plan.row_tile));
            EXPECT_TRUE(plan.row_tile >= rows || plan.row_tile >= 64);
            EXPECT_GE(plan.ring, 2);
            EXPECT_LE(plan.ring * plan.stage_bytes, 200 << 10);
            if (plan.segments > 1) {
              EXPECT_LE(CeilDiv(CeilDiv(outputs, kCodeTileRows), plan.groups) * plan.segments,
                        kBlocks);
            }
            for (int segment = 0; segment <= plan.segments; ++segment) {
              EXPECT_EQ(
                  SegmentBegin(2 * col_tiles, plan.segments, segment) % (2 * plan.stage_tiles), 0);
            }
          }
        }
      }
    }
  }
}

TEST(CodePlan, SharesTheWorkOfLargeShapes) {
  const CodeTiles tiles{8, 0};
  EXPECT_EQ(ChooseCodePlan(tiles, 6144, 32, 1, 1, 132, false).groups, 1);
  EXPECT_EQ(ChooseCodePlan(tiles, 28672, 32, 1, 1, 132, true).groups, 4);
  EXPECT_EQ(ChooseCodePlan(tiles, 4096, 112, 4, 1, 132, false).groups, 2);
}

}  // namespace
}  // namespace talon::cuda
