#include "compute/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace talon {
namespace {

// Magnitudes are at most kLargestE4M3.
float NearestE4M3(float value) {
  // The exponent of the last bit: three bits below the leading one, or that of subnormals.
  const int last = std::max(std::ilogb(value) - 3, -9);
  return std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
}

}  // namespace

float FromE4M3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  const float sign = (bits & 128) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -9);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

void RoundToFp8(std::span<float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / kLargestE4M3;
  if (scale == 0) return;
  for (float& value : values) {
    if (value != 0) value = NearestE4M3(value / scale) * scale;
  }
}

}  // namespace talon
