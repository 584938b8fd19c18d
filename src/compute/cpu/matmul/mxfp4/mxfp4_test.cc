// Every MXFP4 kernel that this machine can run; experts_test.cc runs the best through the backend.
#include "compute/cpu/matmul/mxfp4/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace talon {
namespace {

struct Problem {
  Problem(int num_rows, int num_outputs, int num_inputs)
      : rows(num_rows), outputs(num_outputs), inputs(num_inputs) {
    std::mt19937 random(5);
    for (int i = 0; i < rows * inputs; ++i) x.push_back(std::normal_distribution<float>()(random));
    const int groups = outputs * inputs / kMxfp4Group;
    for (int i = 0; i < groups * kMxfp4GroupBytes; ++i) codes.push_back(random() % 256);
    for (int i = 0; i < groups; ++i) scales.push_back(115 + random() % 8);
    weight = NewMxfp4Weight({.data = codes.data(),
                             .dtype = DType::kMxfp4,
                             .rows = outputs,
                             .cols = inputs,
                             .scales = scales.data()})
                 .value();
  }

  std::vector<float> Run(int first, int count, const Mxfp4Kernel& kernel) {
    std::vector<float> out(count * outputs);
    MatMulScratch scratch;
    RunMxfp4Product(pool,
                    {.x = {x.data() + first * inputs, count, inputs, inputs},
                     .w = weight.get(),
                     .out = {out.data(), count, outputs, outputs}},
                    static_cast<const Mxfp4Weight&>(*weight), &scratch, &kernel);
    return out;
  }

  int rows, outputs, inputs;
  std::vector<float> x;
  std::vector<uint8_t> codes, scales;
  std::unique_ptr<Weight> weight;
  ThreadPool pool{2};
};

class Mxfp4KernelTest : public ::testing::TestWithParam<const Mxfp4Kernel*> {};

TEST_P(Mxfp4KernelTest, MultipliesByWhatTheCodesMean) {
  Problem problem(19, 45, 160);  // neither rows nor outputs fill their last tile
  std::vector<float> w(problem.outputs * problem.inputs);
  ExpandMxfp4(problem.codes.data(), problem.scales.data(), static_cast<int64_t>(w.size()),
              w.data());
  const std::vector<float> got = problem.Run(0, problem.rows, *GetParam());
  for (int r = 0; r < problem.rows; ++r) {
    for (int j = 0; j < problem.outputs; ++j) {
      double sum = 0, squares = 0;
      for (int k = 0; k < problem.inputs; ++k) {
        const double product = problem.x[r * problem.inputs + k] * w[j * problem.inputs + k];
        sum += product;
        squares += product * product;
      }
      // 15 bits of an activation that is not much smaller than the largest of its group.
      EXPECT_NEAR(got[r * problem.outputs + j], sum, 1e-3 * std::sqrt(squares)) << r << " " << j;
    }
  }
}

TEST_P(Mxfp4KernelTest, RowDoesNotDependOnItsNumberOfRows) {
  constexpr int kRows = 21;
  Problem problem(kRows, 22, 96);
  std::vector<float> alone;
  for (int r = 0; r < kRows; ++r) {
    const std::vector<float> row = problem.Run(r, 1, *GetParam());
    alone.insert(alone.end(), row.begin(), row.end());
  }
  for (int rows = 2; rows <= kRows; ++rows) {
    const std::vector<float> got = problem.Run(0, rows, *GetParam());
    ASSERT_TRUE(std::equal(got.begin(), got.end(), alone.begin())) << rows << " rows";
  }
}

std::vector<const Mxfp4Kernel*> Kernels() {
  std::vector<const Mxfp4Kernel*> all;
  for (auto kernel = AttainableMxfp4Kernels(); *kernel != nullptr; ++kernel) all.push_back(*kernel);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Mxfp4KernelTest, ::testing::ValuesIn(Kernels()),
                         [](const auto& info) {
                           return std::string(info.param->name).substr(sizeof("mxfp4"));
                         });

}  // namespace
}  // namespace talon
