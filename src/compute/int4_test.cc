#include "compute/int4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compute/dtype.h"

namespace talon {
namespace {

double SquaredError(const std::vector<float>& values, const Int4Weights& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] - double{weights.scale} * weights.codes[i];
    sum += error * error;
  }
  return sum;
}

// Like Gaussian noise, reproducible.
std::vector<float> Noise(int count, uint32_t seed) {
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : values) {
    for (int i = 0; i < 8; ++i) {
      state = state * 1664525u + 1013904223u;
      value += static_cast<float>(static_cast<int32_t>(state)) / (1u << 31);
    }
  }
  return values;
}

TEST(Int4Test, CodesAreTheNearestForTheScale) {
  for (const int count : {1, 2, 7, 31, 32}) {
    for (uint32_t seed = 0; seed < 50; ++seed) {
      const std::vector<float> values = Noise(count, seed);
      const Int4Weights weights = QuantizeInt4(values.data(), count);
      EXPECT_EQ(weights.scale, F32FromBF16(BF16FromF32(weights.scale)));
      for (int i = 0; i < count; ++i) {
        const float exact = values[i] / weights.scale;
        EXPECT_GE(weights.codes[i], -8);
        EXPECT_LE(weights.codes[i], 7);
        EXPECT_LE(std::abs(weights.codes[i] - std::clamp(exact, -8.0f, 7.0f)), 0.5001f);
      }
      for (int i = count; i < kInt4Group; ++i) EXPECT_EQ(weights.codes[i], 0);
    }
  }
}

// A scale that only makes the largest value fit is what the search must beat.
TEST(Int4Test, ErrorIsBelowThatOfTheLargestValueAlone) {
  double searched = 0;
  double plain = 0;
  double power = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const std::vector<float> values = Noise(kInt4Group, seed);
    searched += SquaredError(values, QuantizeInt4(values.data(), kInt4Group));
    const float largest = *std::max_element(
        values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    Int4Weights fitting = {.scale = largest / -8};
    for (int i = 0; i < kInt4Group; ++i) {
      const float code = std::nearbyint(values[i] / fitting.scale);
      fitting.codes[i] = static_cast<int8_t>(std::clamp(code, -8.0f, 7.0f));
    }
    plain += SquaredError(values, fitting);
    for (const float value : values) power += double{value} * value;
  }
  EXPECT_LT(searched, 0.95 * plain);
  EXPECT_LT(searched, 0.007 * power);
}

TEST(Int4Test, RepresentableValuesAreExact) {
  for (const float scale : {0.5f, -0.5f, 3e-20f * 0x1p-10f, 1e20f}) {
    const float rounded = F32FromBF16(BF16FromF32(scale));
    std::vector<float> values(kInt4Group);
    for (int i = 0; i < kInt4Group; ++i) values[i] = static_cast<float>(i % 16 - 8) * rounded;
    const Int4Weights weights = QuantizeInt4(values.data(), kInt4Group);
    for (int i = 0; i < kInt4Group; ++i) EXPECT_EQ(weights.codes[i] * weights.scale, values[i]);
  }
}

TEST(Int4Test, DegenerateGroups) {
  const std::vector<float> zeros(kInt4Group, 0.0f);
  EXPECT_EQ(QuantizeInt4(zeros.data(), kInt4Group).scale, 0);
  const std::vector<float> tiny(kInt4Group, 1e-42f);
  EXPECT_EQ(QuantizeInt4(tiny.data(), kInt4Group).scale, 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(kInt4Group, 1.0f);
    values[31] = bad;
    EXPECT_TRUE(std::isnan(QuantizeInt4(values.data(), kInt4Group).scale));
    EXPECT_FALSE(std::isnan(QuantizeInt4(values.data(), 31).scale));
  }
}

}  // namespace
}  // namespace talon
