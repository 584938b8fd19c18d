// Cases that only int4 has; test.cc runs every kernel through everything else.
#include "compute/int4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compute/cpu/matmul/testing.h"

namespace talon {
namespace {

std::vector<const MatrixKernel*> Int4Kernels() {
  std::vector<const MatrixKernel*> all;
  for (auto kernel = AttainableKernels(DType::kI4); *kernel != nullptr; ++kernel) {
    all.push_back(*kernel);
  }
  return all;
}

TEST(MatMulInt4Test, KernelsGiveTheSameBits) {
  ThreadPool pool(2);
  MatMulProblem problem({67, 140, 4100}, 7);
  const std::vector<float> expected =
      RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), PortableInt4Kernel()));
  for (const MatrixKernel* kernel : Int4Kernels()) {
    EXPECT_EQ(RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), *kernel)), expected)
        << kernel->name;
  }
}

TEST(MatMulInt4Test, RowDoesNotDependOnItsNumberOfRows) {
  ThreadPool pool(2);
  constexpr int kMaxRows = 70;
  MatMulProblem problem({kMaxRows, 41, 1030}, 3);
  for (const MatrixKernel* kernel : Int4Kernels()) {
    const auto w = PackWith(pool, problem.W(), *kernel);
    std::vector<float> alone;
    for (int r = 0; r < kMaxRows; ++r) {
      const std::vector<float> row = RunMatMul(pool, problem.X().Rows(r, 1), *w);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (int rows = 1; rows <= kMaxRows; ++rows) {
      const std::vector<float> got = RunMatMul(pool, problem.X().Rows(0, rows), *w);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), alone.begin()))
          << kernel->name << " with " << rows << " rows";
    }
  }
}

TEST(MatMulInt4Test, PackedWeightsAreTheRoundedOnes) {
  ThreadPool pool(2);
  constexpr int kInputs = 75;  // two groups and a part of one
  MatMulProblem problem({kInputs, 21, kInputs}, 8);
  problem.x.assign(problem.x.size(), 0);
  for (int k = 0; k < kInputs; ++k) problem.x[k * kInputs + k] = 127;  // row k asks for input k
  for (const MatrixKernel* kernel : Int4Kernels()) {
    const auto w = PackWith(pool, problem.W(), *kernel);
    const std::vector<float> got = RunMatMul(pool, problem.X(), *w);
    for (int j = 0; j < problem.outputs; ++j) {
      for (int k = 0; k < kInputs; ++k) {
        const int first = k / kInt4Group * kInt4Group;
        const Int4Weights group =
            QuantizeInt4(&problem.w[j * kInputs + first], std::min(kInt4Group, kInputs - first));
        EXPECT_EQ(got[k * problem.outputs + j], 127 * (group.codes[k - first] * group.scale))
            << kernel->name << " output " << j << " input " << k;
      }
    }
  }
}

TEST(MatMulInt4Test, TakesFourAndAHalfBitsAWeight) {
  ThreadPool pool(1);
  MatMulProblem problem({1, 64, 256}, 9);
  for (const MatrixKernel* kernel : Int4Kernels()) {
    const size_t offsets = kernel->offset_activation ? 64 * sizeof(int32_t) : 0;
    EXPECT_EQ(PackWith(pool, problem.W(), *kernel)->bytes(), 64u * 256 * 9 / 16 + offsets)
        << kernel->name;
  }
}

TEST(MatMulInt4Test, NonFiniteAndZeroGroupsStayWithTheirOutputs) {
  ThreadPool pool(2);
  MatMulProblem problem({5, 20, 96}, 10);
  std::fill_n(&problem.w[3 * 96 + 32], 32, 0.0f);
  for (const MatrixKernel* kernel : Int4Kernels()) {
    MatMulProblem broken = problem;
    broken.w[7 * 96 + 40] = std::numeric_limits<float>::infinity();
    broken.w[11 * 96 + 95] = std::nanf("");
    const std::vector<float> clean =
        RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), *kernel));
    const std::vector<float> got =
        RunMatMul(pool, problem.X(), *PackWith(pool, broken.W(), *kernel));
    for (size_t i = 0; i < got.size(); ++i) {
      if (i % 20 == 7 || i % 20 == 11) {
        EXPECT_TRUE(std::isnan(got[i])) << kernel->name << " " << i;
      } else {
        EXPECT_EQ(got[i], clean[i]) << kernel->name << " " << i;
      }
    }
  }
}

// The largest sums of a group: the trick that makes them floats must hold them.
TEST(MatMulInt4Test, LargestGroupSumsAreExact) {
  ThreadPool pool(1);
  constexpr int kInputs = 64;
  const std::vector<float> weights(2 * kInputs, -1.0f);
  const HostMatrix matrix = {weights.data(), DType::kF32, 2, kInputs};
  std::vector<float> x(2 * kInputs, 127.0f);
  std::fill_n(x.begin() + kInputs, kInputs, -127.0f);
  for (const MatrixKernel* kernel : Int4Kernels()) {
    const std::vector<float> got =
        RunMatMul(pool, {x.data(), 2, kInputs, kInputs}, *PackWith(pool, matrix, *kernel));
    EXPECT_EQ(got, (std::vector<float>{-127 * 64, -127 * 64, 127 * 64, 127 * 64})) << kernel->name;
  }
}

TEST(MatMulInt4Test, HasNoLimitOfColumns) {
  ThreadPool pool(2);
  MatMulProblem problem({2, 3, (1 << 17) + 33}, 11);
  for (const MatrixKernel* kernel : Int4Kernels()) {
    const auto w = PackWith(pool, problem.W(), *kernel);
    ExpectPlainLoop(problem, *kernel, RunMatMul(pool, problem.X(), *w, problem.bias.data()));
  }
}

}  // namespace
}  // namespace talon
