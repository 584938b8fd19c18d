// Weights on the grid of a quantised file, against the same values kept as bf16: the same bits, for
// every number of rows, because codes are another way to store the numbers that are multiplied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/math.h"
#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/fp8.h"

namespace talon {
namespace {

using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::MakeBackend;
using testing::RandomValues;
using testing::SameBits;

struct GridCase {
  const char* name;
  DType dtype;
  int group;  // 0: one for an output
  bool zeros;
};
constexpr GridCase kGrids[] = {
    {"int8", DType::kI8, 0, false},
    {"fp8", DType::kF8E4M3, 0, false},
    {"fp8 blocks", DType::kF8E4M3, 128, false},
    {"int4 by output", DType::kI4, 0, false},
    {"int4, 32", DType::kI4, 32, false},
    {"int4, 64, zeros", DType::kI4, 64, true},
    {"int4, 128", DType::kI4, 128, false},
    {"int4, 128, zeros", DType::kI4, 128, true},
    {"int4, 256", DType::kI4, 256, false},
};

// Random codes with scales that leave the numbers of bf16 as they are: any bf16 where they are
// rounded with their codes, powers of two where outputs are multiplied by them.
struct GridMatrix {
  std::vector<float> values;
  std::shared_ptr<QuantGrid> grid = std::make_shared<QuantGrid>();

  GridMatrix(const GridCase& kind, int rows, int cols, uint64_t seed) {
    std::mt19937 random(seed);
    grid->dtype = kind.dtype;
    grid->group = kind.group == 0 ? cols : kind.group;
    const int groups = CeilDiv(cols, static_cast<int>(grid->group));
    const bool exact = kind.dtype != DType::kI4 && groups == 1;
    for (int i = 0; i < rows * groups; ++i) {
      const float power = std::ldexp(1.0f, static_cast<int>(random() % 3) - 8);
      grid->scales.push_back(exact ? power
                                   : power * (1 + static_cast<float>(random() % 128) / 128));
      if (kind.zeros) grid->zeros.push_back(static_cast<float>(random() % 17));
    }
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < cols; ++col) {
        const int at = row * groups + col / static_cast<int>(grid->group);
        values.push_back(grid->scales[at] * Code(random(), kind, at));
      }
    }
  }

  float Code(uint32_t bits, const GridCase& kind, int at) const {
    if (kind.dtype == DType::kI8) return static_cast<int8_t>(bits);
    if (kind.dtype == DType::kI4) {
      return static_cast<float>(bits % 16) - (kind.zeros ? grid->zeros[at] : 8);
    }
    const float value = FromE4M3(static_cast<uint8_t>(bits));
    return std::isnan(value) ? 0 : value;
  }

  HostMatrix Rows(int first, int count, int cols) const {
    return {.data = values.data() + int64_t{first} * cols,
            .dtype = DType::kF32,
            .rows = count,
            .cols = cols,
            .expanded = true};
  }
};

class QuantisedTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Two parts, each with its own part of the grid where it has one.
  std::unique_ptr<Weight> Pack(const GridMatrix& matrix, int rows, int cols, bool on_grid) {
    const int groups = CeilDiv(cols, static_cast<int>(matrix.grid->group));
    std::vector<HostMatrix> parts;
    for (const auto& [first, count] :
         {std::pair(0, rows / 2), std::pair(rows / 2, rows - rows / 2)}) {
      parts.push_back(matrix.Rows(first, count, cols));
      if (!on_grid) continue;
      auto grid = std::make_shared<QuantGrid>();
      grid->dtype = matrix.grid->dtype;
      grid->group = matrix.grid->group;
      const auto cut = [&, first = first, count = count](const std::vector<float>& from) {
        if (from.empty()) return from;
        return std::vector<float>(from.begin() + first * groups,
                                  from.begin() + (first + count) * groups);
      };
      grid->scales = cut(matrix.grid->scales);
      grid->zeros = cut(matrix.grid->zeros);
      parts.back().grid = grid;
    }
    auto weight =
        backend_->PackWeight(parts, on_grid ? WeightFormat::kAsStored : WeightFormat::kBF16);
    EXPECT_TRUE(weight.ok()) << weight.status().message();
    return std::move(weight).value();
  }

  std::vector<float> Product(const Weight& w, int rows, bool accumulate) {
    const DeviceMatrix x(*backend_, rows, w.cols(), RandomValues(rows * w.cols(), 3));
    const DeviceArray bias(*backend_, RandomValues(w.rows(), 4));
    const DeviceMatrix out(*backend_, rows, w.rows(), RandomValues(rows * w.rows(), 5));
    backend_->MatMul({.x = x.view(),
                      .w = &w,
                      .bias = accumulate ? nullptr : bias.floats(),
                      .out = out.view(),
                      .accumulate = accumulate});
    return out.Read();
  }

  std::vector<float> FeedForward(const Weight& gate_up, const Weight& down, int rows) {
    const DeviceMatrix x(*backend_, rows, down.rows(), RandomValues(rows * down.rows(), 6));
    const DeviceArray norm(*backend_, RandomValues(down.rows(), 7));
    const DeviceArray bias(*backend_, RandomValues(gate_up.rows(), 8));
    backend_->FeedForward(x.view(), norm.floats(), 1e-5f,
                          {&gate_up, bias.floats(), &down, nullptr});
    return x.Read();
  }

  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

TEST_P(QuantisedTest, ProductsHaveTheBitsOfBf16) {
  // Tails, whole tiles, inputs in segments, more outputs than a block has.
  const std::pair<int, int> shapes[] = {{75, 136}, {192, 2048}, {1024, 512}, {4100, 256}};
  for (const GridCase& kind : kGrids) {
    for (const auto& [outputs, inputs] : shapes) {
      const GridMatrix matrix(kind, outputs, inputs, outputs);
      const auto codes = Pack(matrix, outputs, inputs, true);
      const auto values = Pack(matrix, outputs, inputs, false);
      for (const int rows : {1, 8, 9, 20, 64, 65, 128, 129, 300}) {
        if (outputs > 1024 && rows > 9 && rows < 300) continue;
        const bool accumulate = rows % 2 == 0;
        EXPECT_TRUE(SameBits(Product(*codes, rows, accumulate), Product(*values, rows, accumulate)))
            << kind.name << ", " << outputs << " x " << inputs << ", rows " << rows;
      }
    }
  }
}

TEST_P(QuantisedTest, GatedProductsHaveTheBitsOfBf16) {
  for (const auto& [hidden, ffn] : {std::pair(256, 1024), std::pair(192, 384)}) {
    for (const GridCase& kind : kGrids) {
      const GridMatrix wide(kind, 2 * ffn, hidden, 1), narrow(kind, hidden, ffn, 2);
      const auto gate_up = Pack(wide, 2 * ffn, hidden, true);
      const auto down = Pack(narrow, hidden, ffn, true);
      const auto gate_up_values = Pack(wide, 2 * ffn, hidden, false);
      const auto down_values = Pack(narrow, hidden, ffn, false);
      for (const int rows : {1, 16, 65, 128, 300}) {
        EXPECT_TRUE(SameBits(FeedForward(*gate_up, *down, rows),
                             FeedForward(*gate_up_values, *down_values, rows)))
            << kind.name << ", ffn " << ffn << ", rows " << rows;
      }
    }
  }
}

// The CPU expands quantised files.
TEST_P(QuantisedTest, CodesTakeLessMemoryOnADevice) {
  for (const GridCase& kind : kGrids) {
    const GridMatrix matrix(kind, 1024, 1024, 1);
    const double share = static_cast<double>(Pack(matrix, 1024, 1024, true)->bytes()) /
                         static_cast<double>(Pack(matrix, 1024, 1024, false)->bytes());
    if (!testing::IsDevice(GetParam())) {
      EXPECT_EQ(share, 1) << kind.name;
      continue;
    }
    EXPECT_LT(share, kind.dtype == DType::kI4 ? 0.32 : 0.52) << kind.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantisedTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu2"})),
                         [](const auto& param) { return param.param; });

TEST(Fp8, RoundsToTheNearestOfAllCodes) {
  std::mt19937 random(1);
  std::vector<float> values = {kLargestE4M3, -kLargestE4M3, 0, 0.001f, -0.0009f, 0.0009765625f};
  std::normal_distribution<float> normal(0, 3);
  while (values.size() < 2000) {
    const float value = std::pow(2.0f, normal(random)) * normal(random);
    values.push_back(std::clamp(value, -kLargestE4M3, kLargestE4M3));
  }
  std::vector<float> rounded = values;
  RoundToFp8(rounded);  // the largest is 448, so the scale is 1
  for (size_t i = 0; i < values.size(); ++i) {
    float least = INFINITY;
    bool is_code = false;
    for (int code = 0; code < 256; ++code) {
      const float value = FromE4M3(static_cast<uint8_t>(code));
      if (std::isnan(value)) continue;
      least = std::min(least, std::abs(values[i] - value));
      is_code = is_code || value == rounded[i];
    }
    EXPECT_TRUE(is_code) << values[i] << " became " << rounded[i];
    EXPECT_EQ(std::abs(values[i] - rounded[i]), least) << values[i];
  }
}

}  // namespace
}  // namespace talon
