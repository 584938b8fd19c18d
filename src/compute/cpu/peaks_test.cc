#include "compute/cpu/peaks.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(PeaksTest, MeasuresSomethingPossible) {
  ThreadPool pool(1);
  const double f32 = MeasureMatrixPeak(pool, MatrixKind::kF32);
  EXPECT_GT(f32, 0.01);
  EXPECT_LT(f32, 1e5);  // a core does not do more: a loop the compiler removed would
  EXPECT_GT(MeasureMatrixPeak(pool, MatrixKind::kBF16), 0.01);
  EXPECT_LT(MeasureMatrixPeak(pool, MatrixKind::kInt8), 1e5);
}

}  // namespace
}  // namespace talon
