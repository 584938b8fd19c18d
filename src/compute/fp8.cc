#include "compute/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace talon {
namespace {

// Magnitudes are at most kLargestE4M3. The last bit is three below the leading one, or that of
// subnormals: where a sum with 1.5 * 2^23 times its worth has its last bit.
float NearestE4M3(float value) {
  constexpr uint32_t kExponent = 0x7f800000;
  const float leading = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kExponent);
  const float anchor = std::max(leading, 0x1p-6f) * 0x1.8p20f;
  return (value + anchor) - anchor;
}

void RoundGroupToFp8(std::span<float> values) {
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFF);
  }
  const Fp8Scale of_group = Fp8ScaleOf(largest);
  for (float& value : values) value = NearestE4M3(value * of_group.inverse) * of_group.scale;
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

void RoundActivationsToFp8(std::span<float> row) {
  for (size_t i = 0; i < row.size(); i += kFp8Group) {
    RoundGroupToFp8(row.subspan(i, std::min<size_t>(kFp8Group, row.size() - i)));
  }
}

}  // namespace talon
