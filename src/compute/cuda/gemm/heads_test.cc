#include "compute/cuda/gemm/heads.h"

#include <gtest/gtest.h>

#include <set>

namespace talon::cuda {
namespace {

TEST(HeadsTest, PairsAndPartnersCoverATileOnce) {
  constexpr int kTile = 128;
  for (const int head_dim : {8, 16, 32, 64, 128}) {
    ASSERT_TRUE(HoldsHeads(kTile, head_dim, head_dim));
    std::set<int> seen;
    for (int pair = 0; pair < kTile / 8; ++pair) {
      const int first = OutputOfPair(pair, head_dim);
      EXPECT_LT(first % head_dim, head_dim / 2);
      for (const int start : {first, first + head_dim / 2}) {
        EXPECT_EQ(start % 4, 0);
        EXPECT_EQ(start / head_dim, first / head_dim);
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(seen.insert(start + i).second);
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), kTile);
    EXPECT_EQ(*seen.rbegin(), kTile - 1);
  }
}

TEST(HeadsTest, OtherHeadsAreNotHeld) {
  EXPECT_FALSE(HoldsHeads(128, 96, 96));   // not whole heads
  EXPECT_FALSE(HoldsHeads(128, 128, 64));  // rotated in part
  EXPECT_FALSE(HoldsHeads(128, 4, 4));     // no whole pair
  EXPECT_FALSE(HoldsHeads(128, 256, 256));
}

}  // namespace
}  // namespace talon::cuda
