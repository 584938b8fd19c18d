#include "compute/int4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compute/dtype.h"

namespace talon {
namespace {

// Codes that the value of the largest magnitude is tried at. Beyond [-8, 7] it is cut off, which
// makes the steps between the other values smaller.
constexpr float kExtremeCodes[] = {-8, -7, -7.5f, -8.5f, -9, 6.5f, 7, 7.5f};

float RoundedToBF16(float value) { return F32FromBF16(BF16FromF32(value)); }

// The nearest code of x, as a float.
inline float Code(float x, float inverse) {
  // Added to a small number, 1.5 * 2^23 rounds it to an integer, ties to even.
  constexpr float kRounder = 12582912.0f;
  return std::clamp((x * inverse + kRounder) - kRounder, -8.0f, 7.0f);
}

// Lanes that do not wait for each other, so that the compiler vectorises the loops.
constexpr int kLanes = 8;

float SumOfLanes(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float SquaredError(const float (&values)[kInt4Group], float scale) {
  const float inverse = 1 / scale;
  float lanes[kLanes] = {};
  for (int i = 0; i < kInt4Group; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float error = values[i + j] - Code(values[i + j], inverse) * scale;
      lanes[j] += error * error;
    }
  }
  return SumOfLanes(lanes);
}

// The scale of least squared error for the codes that `scale` gives.
float FittedScale(const float (&values)[kInt4Group], float scale) {
  const float inverse = 1 / scale;
  float products[kLanes] = {};
  float squares[kLanes] = {};
  for (int i = 0; i < kInt4Group; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float code = Code(values[i + j], inverse);
      products[j] += values[i + j] * code;
      squares[j] += code * code;
    }
  }
  return RoundedToBF16(SumOfLanes(products) / SumOfLanes(squares));
}

float ChooseScale(const float (&values)[kInt4Group], float extreme) {
  float best = RoundedToBF16(extreme / kExtremeCodes[0]);  // stays if every error overflows
  float least = std::numeric_limits<float>::infinity();
  const auto consider = [&](float scale) {
    const float error = SquaredError(values, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  };
  for (const float code : kExtremeCodes) consider(RoundedToBF16(extreme / code));
  consider(FittedScale(values, best));
  return best;
}

}  // namespace

Int4Weights QuantizeInt4(const float* from, int count) {
  Int4Weights weights = {};
  float values[kInt4Group] = {};
  std::copy_n(from, count, values);
  float extreme = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return {.scale = std::numeric_limits<float>::quiet_NaN()};
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  }
  if (std::abs(extreme) < 1e-30f) return weights;
  weights.scale = ChooseScale(values, extreme);
  for (int i = 0; i < kInt4Group; ++i) {
    weights.codes[i] = static_cast<int8_t>(Code(values[i], 1 / weights.scale));
  }
  return weights;
}

}  // namespace talon
