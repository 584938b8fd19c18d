// Products that are summed in segments of their inputs: each segment as if it were alone, and the
// segments pairwise.
#include "compute/ranks/segments.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/testing.h"

namespace talon {
namespace {

class SegmentsTest : public ::testing::TestWithParam<const MatrixKernel*> {
 protected:
  // The product by the inputs of one segment, which a weight of its own holds.
  std::vector<float> Alone(MatMulProblem& problem, IndexRange inputs) {
    std::vector<float> cut;
    for (int o = 0; o < problem.outputs; ++o) {
      const float* row = problem.w.data() + int64_t{o} * problem.inputs;
      cut.insert(cut.end(), row + inputs.first, row + inputs.last);
    }
    const auto w =
        PackWith(pool_, {cut.data(), DType::kF32, problem.outputs, inputs.count()}, *GetParam());
    return RunMatMul(pool_, problem.X().Cols(inputs.first, inputs.count()), *w);
  }

  std::optional<std::vector<float>> Pairwise(MatMulProblem& problem, std::span<const int> bounds) {
    if (bounds.front() == bounds.back()) return std::nullopt;
    if (bounds.size() == 2) return Alone(problem, {bounds[0], bounds[1]});
    auto left = Pairwise(problem, bounds.first(bounds.size() / 2 + 1));
    const auto right = Pairwise(problem, bounds.subspan(bounds.size() / 2));
    if (!left) return right;
    if (!right) return left;
    for (size_t i = 0; i < left->size(); ++i) (*left)[i] += (*right)[i];
    return left;
  }

  std::vector<float> Summed(MatMulProblem& problem, std::span<const int> bounds) {
    return RunMatMul(pool_, problem.X(), *PackWith(pool_, problem.W(), *GetParam(), bounds));
  }

  ThreadPool pool_{2};
};

INSTANTIATE_TEST_SUITE_P(Attainable, SegmentsTest, ::testing::ValuesIn(AllKernels()),
                         [](const auto& info) { return TestNameOf(*info.param); });

struct SegmentCase {
  MatMulShape shape;
  int unit;
};

// Inputs that segments divide evenly, unevenly, and so few that some segments are empty.
constexpr SegmentCase kCases[] = {{{1, 64, 512}, 64},     {{2, 130, 2880}, 32}, {{5, 48, 1000}, 32},
                                  {{70, 33, 256}, 32},    {{3, 17, 96}, 32},    {{1, 300, 64}, 16},
                                  {{64, 128, 4096}, 512}, {{9, 20, 40}, 32}};

TEST_P(SegmentsTest, SumsOfSegmentsAloneAddUpToTheSameBits) {
  for (const SegmentCase& c : kCases) {
    MatMulProblem problem(c.shape, 4);
    const std::vector<int> bounds = SegmentBounds(problem.inputs, c.unit);
    EXPECT_EQ(Summed(problem, bounds), *Pairwise(problem, bounds))
        << c.shape.rows << " rows, " << c.shape.inputs << " inputs";
  }
}

// What 2, 4 and 8 ranks compute: each the sum of its own segments.
TEST_P(SegmentsTest, RanksGetTheSameBits) {
  for (const SegmentCase& c : kCases) {
    MatMulProblem problem(c.shape, 5);
    const std::vector<int> bounds = SegmentBounds(problem.inputs, c.unit);
    const std::vector<float> whole = Summed(problem, bounds);
    for (int size = 2; size <= kSegments; size *= 2) {
      std::vector<std::vector<float>> sums;
      for (int rank = 0; rank < size; ++rank) {
        const IndexRange own = SegmentsOf(rank, size);
        const auto sum = Pairwise(problem, std::span(bounds).subspan(own.first, own.count() + 1));
        if (sum) sums.push_back(*sum);
      }
      if (static_cast<int>(sums.size()) < size) continue;  // too small for so many
      for (size_t step = 1; step < sums.size(); step *= 2) {
        for (size_t rank = 0; rank < sums.size(); rank += 2 * step) {
          for (size_t i = 0; i < whole.size(); ++i) sums[rank][i] += sums[rank + step][i];
        }
      }
      EXPECT_EQ(sums[0], whole) << size << " ranks, " << c.shape.inputs << " inputs";
    }
  }
}

TEST(SegmentBoundsTest, SegmentsCoverAllInputsAtMultiplesOfTheUnit) {
  for (const int count : {1, 31, 32, 33, 64, 1000, 2880, 14336}) {
    const std::vector<int> bounds = SegmentBounds(count, 32);
    ASSERT_EQ(bounds.size(), size_t{kSegments + 1});
    EXPECT_EQ(bounds.front(), 0);
    EXPECT_EQ(bounds.back(), count);
    for (int s = 0; s < kSegments; ++s) {
      EXPECT_LE(bounds[s], bounds[s + 1]);
      EXPECT_TRUE(bounds[s] % 32 == 0) << count;
    }
  }
}

// A model that can have two ranks at most needs no more than two segments.
TEST(SegmentBoundsTest, FewerPartsLeaveSegmentsEmptyButGiveEveryRankItsShare) {
  for (const int parts : {1, 2, 4}) {
    const std::vector<int> bounds = SegmentBounds(704, 32, parts);
    ASSERT_EQ(bounds.size(), size_t{kSegments + 1});
    int filled = 0;
    for (int s = 0; s < kSegments; ++s) filled += bounds[s + 1] > bounds[s];
    EXPECT_EQ(filled, parts);
    for (int rank = 0; rank < parts; ++rank) {
      EXPECT_EQ(InputsOf(bounds, rank, parts).first, 22 * rank / parts * 32) << rank;
    }
    EXPECT_EQ(bounds.back(), 704);
  }
}

}  // namespace
}  // namespace talon
