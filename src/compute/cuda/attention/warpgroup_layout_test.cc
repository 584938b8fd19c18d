#include "compute/cuda/attention/warpgroup_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace talon::cuda {
namespace {

struct Fields {
  uint32_t start, leading, stride;  // bytes
  explicit Fields(uint64_t descriptor)
      : start((descriptor & 0x3FFF) << 4),
        leading((descriptor >> 16 & 0x3FFF) << 4),
        stride((descriptor >> 32 & 0x3FFF) << 4) {
    EXPECT_EQ(descriptor >> 62, 1u);
  }
};

// The 128-byte swizzle: address bits [4, 7) are XORed with bits [7, 10).
uint32_t Swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

TEST(AttentionWarpgroupLayout, RowsAreFoundWherePiecesWereWritten) {
  constexpr uint32_t kBase = 3 * kPanelAlignment;
  for (const int rows : {64, 128, kStepKeys}) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < 128; ++column) {
        const uint32_t written = kBase + PieceOffset(rows, row, column / 8) + column % 8 * 2;
        const int matrix = column / kPanelCols;
        const int step = column % kPanelCols / 16 * 16;
        const Fields fields(RowDescriptor(kBase + matrix * rows * kPanelRowBytes + step * 2));
        const uint32_t logical =
            fields.start + row % 8 * kPanelRowBytes + row / 8 * fields.stride + column % 16 * 2;
        EXPECT_EQ(Swizzled(logical), written) << row << " " << column;
      }
    }
  }
}

TEST(AttentionWarpgroupLayout, ColumnsAreFoundWherePiecesWereWritten) {
  constexpr uint32_t kBase = 5 * kPanelAlignment;
  constexpr int kMatrixBytes = kStepKeys * kPanelRowBytes;
  for (int key = 0; key < kStepKeys; ++key) {
    for (int column = 0; column < 128; ++column) {
      const uint32_t written = kBase + PieceOffset(kStepKeys, key, column / 8) + column % 8 * 2;
      const Fields fields(ColumnDescriptor(kBase + key / 16 * 16 * kPanelRowBytes, kMatrixBytes));
      const uint32_t logical = fields.start + column % 64 * 2 + column / 64 * fields.leading +
                               key % 8 * kPanelRowBytes + key % 16 / 8 * fields.stride;
      EXPECT_EQ(Swizzled(logical), written) << key << " " << column;
    }
  }
}

// TMA swizzles the 16-byte pieces of a box's rows by the same address bits.
TEST(AttentionWarpgroupLayout, BoxesLandWhereTheirPiecesBelong) {
  std::set<std::pair<int, int>> pieces;
  for (int box = 0; box < kStepKeys / kBoxKeys * 2; ++box) {
    EXPECT_EQ(BoxOffset(box) % kPanelAlignment, 0);
    for (int row = 0; row < kBoxKeys; ++row) {
      for (int piece = 0; piece < kPanelCols / 8; ++piece) {
        const int key = BoxKey(box) + row;
        const int whole = BoxColumn(box) / 8 + piece;
        pieces.insert({key, whole});
        EXPECT_EQ(Swizzled(BoxOffset(box) + row * kPanelRowBytes + piece * 16),
                  static_cast<uint32_t>(PieceOffset(kStepKeys, key, whole)));
      }
    }
  }
  EXPECT_EQ(pieces.size(), static_cast<size_t>(kStepKeys) * 16);
}

// Offset of what a lane stores of a portion.
int StoredAt(int dim, int lane, int load, int half) {
  const int first = PieceOffset(kStepKeys, CodeKey(dim, lane, 0), 2 * CodePiece(dim, lane));
  return CodeOffset(dim, first, load, half);
}

// Every code of a portion is read once and expanded to where wgmma expects its key and column.
TEST(AttentionWarpgroupLayout, CodesAreExpandedToWhereTheirPiecesBelong) {
  for (const int dim : {64, 128}) {
    std::set<std::pair<int, int>> pieces;
    for (int lane = 0; lane < 32; ++lane) {
      for (int load = 0; load < CodeLoads(dim); ++load) {
        const int key = CodeKey(dim, lane, load);
        const int piece = CodePiece(dim, lane);
        EXPECT_LT(key, kPortionKeys);
        pieces.insert({key, piece});
        for (const int half : {0, 1}) {
          EXPECT_EQ(StoredAt(dim, lane, load, half), PieceOffset(kStepKeys, key, 2 * piece + half));
        }
      }
    }
    EXPECT_EQ(pieces.size(), static_cast<size_t>(kPortionKeys * dim / 16));
  }
}

// Eight lanes store 16 bytes each at once, to all banks.
TEST(AttentionWarpgroupLayout, StoresOfExpandedCodesHaveNoBankConflicts) {
  for (const int dim : {64, 128}) {
    for (int first = 0; first < 32; first += 8) {
      for (int store = 0; store < 2 * CodeLoads(dim); ++store) {
        std::set<int> banks;
        for (int lane = first; lane < first + 8; ++lane) {
          banks.insert(StoredAt(dim, lane, store / 2, store % 2) / 16 % 8);
        }
        EXPECT_EQ(banks.size(), 8u) << dim << " " << first << " " << store;
      }
    }
  }
}

TEST(AttentionWarpgroupLayout, ThreadsHoldEveryAccumulatorOnce) {
  std::set<std::pair<int, int>> accumulators;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < kStepKeys / 2; ++i) {
      accumulators.insert({AccumulatorQuery(thread, i), AccumulatorColumn(thread, i)});
    }
  }
  EXPECT_EQ(accumulators.size(), 64u * kStepKeys);
  EXPECT_EQ(*accumulators.rbegin(), std::make_pair(63, kStepKeys - 1));
}

}  // namespace
}  // namespace talon::cuda
