// 4-bit weights: symmetric codes in [-8, 7] with one bf16 scale for each group of 32 inputs of an
// output, 4.5 bits a weight. Every backend that keeps int4 rounds with this function, so their
// weights are the same.
#ifndef TALON_COMPUTE_INT4_H_
#define TALON_COMPUTE_INT4_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compute/host_device.h"

namespace talon {

constexpr int kInt4Group = 32;  // inputs that share a scale

struct Int4Weights {
  int8_t codes[kInt4Group];  // in [-8, 7]; value i is about codes[i] * scale
  float scale;               // a bf16; either sign. NaN if a value is NaN or infinite
};

namespace int4 {

// To nearest, ties to even; the value is finite.
TALON_HOST_DEVICE inline float RoundedToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

// The nearest code of x, as a float.
TALON_HOST_DEVICE inline float Code(float x, float inverse) {
  // Added to a small number, 1.5 * 2^23 rounds it to an integer, ties to even.
  constexpr float kRounder = 12582912.0f;
  return std::clamp((x * inverse + kRounder) - kRounder, -8.0f, 7.0f);
}

// Lanes that do not wait for each other, so that the compiler vectorises the loops.
constexpr int kLanes = 8;

TALON_HOST_DEVICE inline float SumOfLanes(const float (&lanes)[kLanes]) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

TALON_HOST_DEVICE inline float SquaredError(const float (&values)[kInt4Group], float scale) {
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
TALON_HOST_DEVICE inline float FittedScale(const float (&values)[kInt4Group], float scale) {
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

TALON_HOST_DEVICE inline float ChooseScale(const float (&values)[kInt4Group], float extreme) {
  // Codes that the value of the largest magnitude is tried at. Beyond [-8, 7] it is cut off, which
  // makes the steps between the other values smaller.
  constexpr float kExtremeCodes[] = {-8, -7, -7.5f, -8.5f, -9, 6.5f, 7, 7.5f};
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

}  // namespace int4

// The codes of `count` values (1..kInt4Group, the rest become 0) with the scale that, of several
// near the one that just fits the largest value, has the least squared error.
TALON_HOST_DEVICE inline Int4Weights QuantizeInt4(const float* from, int count) {
  Int4Weights weights = {};
  float values[kInt4Group] = {};
  for (int i = 0; i < count; ++i) values[i] = from[i];
  float extreme = 0;
  for (const float value : values) {
    if (!std::isfinite(value))
      return {.codes = {}, .scale = std::numeric_limits<float>::quiet_NaN()};
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  }
  if (std::abs(extreme) < 1e-30f) return weights;
  weights.scale = int4::ChooseScale(values, extreme);
  for (int i = 0; i < kInt4Group; ++i) {
    weights.codes[i] = static_cast<int8_t>(int4::Code(values[i], 1 / weights.scale));
  }
  return weights;
}

}  // namespace talon

#endif  // TALON_COMPUTE_INT4_H_
