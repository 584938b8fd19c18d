#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/cpu/matmul/testing.h"
#include "hwy/highway.h"

namespace talon {
namespace {

class MatMulKernelTest : public ::testing::TestWithParam<const MatrixKernel*> {
 protected:
  const MatrixKernel& kernel() const { return *GetParam(); }
  ThreadPool pool_{2};
};

INSTANTIATE_TEST_SUITE_P(Attainable, MatMulKernelTest, ::testing::ValuesIn(AllKernels()),
                         [](const auto& info) { return TestNameOf(*info.param); });

constexpr MatMulShape kCases[] = {
    {1, 1, 1},    {1, 16, 64},   {1, 33, 65},   {1, 300, 1000}, {2, 8, 8},     {2, 31, 7},
    {3, 33, 65},  {4, 128, 512}, {5, 130, 31},  {8, 64, 256},   {9, 65, 130},  {17, 100, 257},
    {33, 40, 33}, {64, 32, 128}, {65, 48, 513}, {70, 17, 5000}, {515, 40, 72},
};

TEST_P(MatMulKernelTest, AgreesWithPlainLoop) {
  for (const MatMulShape& c : kCases) {
    MatMulProblem problem(c, 1);
    const auto w = PackWith(pool_, problem.W(), kernel());
    const std::vector<float> got = RunMatMul(pool_, problem.X(), *w, problem.bias.data());
    ExpectPlainLoop(problem, kernel(), got);
  }
}

// The float kernels choose among Highway's targets themselves.
TEST_P(MatMulKernelTest, EveryHighwayTargetAgrees) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const MatMulShape& c : {MatMulShape{1, 33, 65}, MatMulShape{7, 70, 129}}) {
      MatMulProblem problem(c, 2);
      const auto w = PackWith(pool_, problem.W(), kernel());
      const std::vector<float> got = RunMatMul(pool_, problem.X(), *w, problem.bias.data());
      ExpectPlainLoop(problem, kernel(), got);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST_P(MatMulKernelTest, RowDoesNotDependOnBatch) {
  for (const int inputs : {65, 1030}) {
    MatMulProblem problem({512, 75, inputs}, 3);
    const auto w = PackWith(pool_, problem.W(), kernel());
    std::vector<float> alone;
    for (int r = 0; r < problem.rows; ++r) {
      const std::vector<float> row = RunMatMul(pool_, problem.X().Rows(r, 1), *w);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (const int batch : {2, 3, 5, 8, 15, 17, 31, 64, 512}) {
      const std::vector<float> got = RunMatMul(pool_, problem.X().Rows(0, batch), *w);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], alone[i]) << "batch " << batch << " element " << i;
      }
    }
  }
}

TEST_P(MatMulKernelTest, ThreadsDoNotChangeBits) {
  for (const MatMulShape& c : {MatMulShape{1, 500, 700}, MatMulShape{70, 200, 300}}) {
    MatMulProblem problem(c, 4);
    ThreadPool one(1);
    const std::vector<float> expected =
        RunMatMul(one, problem.X(), *PackWith(one, problem.W(), kernel()));
    for (const int threads : {2, 3}) {
      ThreadPool pool(threads);
      EXPECT_EQ(RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), kernel())), expected);
    }
  }
}

TEST_P(MatMulKernelTest, AccumulatesIntoStridedViews) {
  MatMulProblem problem({5, 35, 40}, 5);
  const auto w = PackWith(pool_, problem.W(), kernel());
  const std::vector<float> product = RunMatMul(pool_, problem.X(), *w, problem.bias.data());

  constexpr int kXStride = 47;
  constexpr int kOutStride = 51;
  std::vector<float> x(problem.rows * kXStride, 1e30f);  // what lies between rows is not read
  std::vector<float> out(problem.rows * kOutStride, 0.25f);
  for (int r = 0; r < problem.rows; ++r) {
    for (int k = 0; k < problem.inputs; ++k) x[r * kXStride + k] = problem.x[r * 40 + k];
  }
  MatMulScratch scratch;
  MatMul(pool_, {x.data(), problem.rows, problem.inputs, kXStride}, *w, problem.bias.data(),
         {out.data(), problem.rows, problem.outputs, kOutStride}, true, &scratch);
  for (int r = 0; r < problem.rows; ++r) {
    for (int j = 0; j < kOutStride; ++j) {
      const float added = j < problem.outputs ? product[r * problem.outputs + j] : 0;
      EXPECT_EQ(out[r * kOutStride + j], 0.25f + added) << r << " " << j;
    }
  }
}

TEST_P(MatMulKernelTest, NonFiniteRowStaysAlone) {
  MatMulProblem problem({3, 20, 30}, 6);
  const auto w = PackWith(pool_, problem.W(), kernel());
  const std::vector<float> clean = RunMatMul(pool_, problem.X(), *w);
  problem.x[30 + 7] = std::nanf("");
  const std::vector<float> got = RunMatMul(pool_, problem.X(), *w);
  for (int j = 0; j < 20; ++j) {
    EXPECT_EQ(got[j], clean[j]);
    EXPECT_TRUE(std::isnan(got[20 + j]));
    EXPECT_EQ(got[40 + j], clean[40 + j]);
  }
}

TEST(MatMulTest, Int8KernelsGiveTheSameBits) {
  ThreadPool pool(2);
  MatMulProblem problem({67, 140, 4100}, 7);
  const std::vector<float> expected =
      RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), PortableInt8Kernel()));
  for (auto kernel = AttainableKernels(DType::kI8); *kernel != nullptr; ++kernel) {
    EXPECT_EQ(RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), **kernel)), expected)
        << (*kernel)->name;
  }
}

TEST_P(MatMulKernelTest, LargeAndSmallRowsSurvive) {
  MatMulProblem problem({4, 40, 64}, 12);
  const float factors[] = {1e12f, 1e-12f, 0, 1};
  const auto w = PackWith(pool_, problem.W(), kernel());
  const std::vector<float> plain = RunMatMul(pool_, problem.X(), *w);
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < 64; ++k) problem.x[r * 64 + k] *= factors[r];
  }
  const std::vector<float> got = RunMatMul(pool_, problem.X(), *w);
  for (int i = 0; i < 4 * 40; ++i) {
    // Row r's elements are at most 2^3 and its 64 products round to 7 bits or better.
    const float factor = factors[i / 40];
    EXPECT_NEAR(got[i], plain[i] * factor, 0.05f * 64 * 8 / 127 * factor) << i;
  }
}

TEST(MatMulTest, LargestInt8SumsDoNotOverflow) {
  ThreadPool pool(2);
  constexpr int kInputs = 1 << 17;
  std::vector<float> ones(kInputs, 1.0f);
  const HostMatrix matrix = {ones.data(), DType::kF32, 1, kInputs};
  for (auto kernel = AttainableKernels(DType::kI8); *kernel != nullptr; ++kernel) {
    const auto w = PackWith(pool, matrix, **kernel);
    EXPECT_NEAR(RunMatMul(pool, {ones.data(), 1, kInputs, kInputs}, *w)[0], kInputs, 0.1)
        << (*kernel)->name;
  }
}

// |x.w - q(x).q(w)| is bounded by the two quantisation errors, half a scale per element each.
TEST(MatMulTest, Int8ErrorIsBoundedByScales) {
  ThreadPool pool(2);
  MatMulProblem problem({4, 50, 300}, 9);
  const auto w = PackWith(pool, problem.W(), *AttainableKernels(DType::kI8)[0]);
  const std::vector<float> got = RunMatMul(pool, problem.X(), *w);
  for (int r = 0; r < problem.rows; ++r) {
    const float* x = &problem.x[r * problem.inputs];
    const double x_error = 0.5 * ChooseInt8Scale(x, DType::kF32, problem.inputs).scale;
    for (int j = 0; j < problem.outputs; ++j) {
      const float* row = &problem.w[j * problem.inputs];
      const double w_error = 0.5 * ChooseInt8Scale(row, DType::kF32, problem.inputs).scale;
      double exact = 0;
      double bound = 1e-6;
      for (int k = 0; k < problem.inputs; ++k) {
        exact += double{x[k]} * row[k];
        bound += 1.0001 * (std::abs(x[k]) * w_error + std::abs(row[k]) * x_error) +
                 1.0001 * x_error * w_error;
      }
      EXPECT_NEAR(got[r * problem.outputs + j], exact, bound);
    }
  }
}

TEST(PackWeightTest, StacksPartsOfDifferentTypes) {
  ThreadPool pool(2);
  MatMulProblem problem({3, 50, 24}, 10);
  for (float& w : problem.w) w = RoundedTo(w, DType::kBF16);
  std::vector<uint16_t> lower(20 * 24);
  ConvertFromF32(problem.w.data() + 30 * 24, 20 * 24, DType::kBF16, lower.data());
  const HostMatrix parts[] = {{problem.w.data(), DType::kF32, 30, 24},
                              {lower.data(), DType::kBF16, 20, 24}};
  auto stacked = PackWeight(pool, parts, WeightFormat::kAsStored);
  ASSERT_TRUE(stacked.ok());
  EXPECT_EQ((*stacked)->kernel().weight_type, DType::kF32);
  EXPECT_EQ((*stacked)->rows(), 50);
  EXPECT_EQ(RunMatMul(pool, problem.X(), **stacked),
            RunMatMul(pool, problem.X(), *PackWith(pool, problem.W(), FloatKernel(DType::kF32))));
}

TEST(PackWeightTest, KeepsTheStoredType) {
  ThreadPool pool(1);
  const std::vector<uint16_t> data(64, 0);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const HostMatrix matrix = {data.data(), type, 8, 8};
    auto packed = PackWeight(pool, {&matrix, 1}, WeightFormat::kAsStored);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ((*packed)->kernel().weight_type, type);
  }
}

TEST(PackWeightTest, RejectsBadParts) {
  ThreadPool pool(1);
  const std::vector<float> data(64, 0);
  const HostMatrix good = {data.data(), DType::kF32, 8, 8};
  const HostMatrix narrow = {data.data(), DType::kF32, 8, 7};
  const HostMatrix integers = {data.data(), DType::kI32, 8, 8};
  const HostMatrix empty = {data.data(), DType::kF32, 0, 8};
  const HostMatrix wide = {data.data(), DType::kF32, 1, (1 << 17) + 1};
  const HostMatrix pair[] = {good, narrow};
  EXPECT_FALSE(PackWeight(pool, {}, WeightFormat::kF32).ok());
  EXPECT_FALSE(PackWeight(pool, pair, WeightFormat::kF32).ok());
  EXPECT_FALSE(PackWeight(pool, {&integers, 1}, WeightFormat::kF32).ok());
  EXPECT_FALSE(PackWeight(pool, {&empty, 1}, WeightFormat::kF32).ok());
  EXPECT_FALSE(PackWeight(pool, {&wide, 1}, WeightFormat::kInt8).ok());
}

// Outputs that the caches cannot hold are stored past them, in rows that may begin anywhere.
TEST_P(MatMulKernelTest, LargeOutputsEqualSmallOnes) {
  MatMulProblem problem({300, 900, 40}, 13);
  const auto w = PackWith(pool_, problem.W(), kernel());
  std::vector<float> expected;
  for (int r = 0; r < problem.rows; r += 20) {
    const std::vector<float> part =
        RunMatMul(pool_, problem.X().Rows(r, 20), *w, problem.bias.data());
    expected.insert(expected.end(), part.begin(), part.end());
  }
  for (const int stride : {900, 912, 905}) {
    std::vector<float> out(int64_t{problem.rows} * stride, 0.5f);
    MatMulScratch scratch;
    MatMul(pool_, problem.X(), *w, problem.bias.data(), {out.data(), problem.rows, 900, stride},
           /*accumulate=*/true, &scratch);
    for (int r = 0; r < problem.rows; ++r) {
      for (int j = 0; j < stride; ++j) {
        const float added = j < 900 ? expected[r * 900 + j] : 0;
        ASSERT_EQ(out[int64_t{r} * stride + j], 0.5f + added) << r << " " << j << " of " << stride;
      }
    }
  }
}

TEST(MatMulTest, ScratchIsReused) {
  ThreadPool pool(2);
  MatMulProblem problem({16, 40, 64}, 11);
  const auto w = PackWith(pool, problem.W(), *AttainableKernels(DType::kI8)[0]);
  std::vector<float> out(16 * 40);
  MatMulScratch scratch;
  MatMul(pool, problem.X(), *w, nullptr, {out.data(), 16, 40, 40}, false, &scratch);
  const size_t bytes = scratch.bytes();
  const uint8_t* at = scratch.Activations(1);
  for (int rows = 1; rows <= 16; ++rows) {
    MatMul(pool, problem.X().Rows(0, rows), *w, nullptr, {out.data(), rows, 40, 40}, false,
           &scratch);
  }
  EXPECT_EQ(scratch.bytes(), bytes);
  EXPECT_EQ(scratch.Activations(1), at);
}

}  // namespace
}  // namespace talon
