#include "compute/mxfp4.h"

#include <cmath>
#include <limits>

namespace talon {

float Mxfp4HalfScale(uint8_t exponent) {
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, exponent - 128);
}

void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) {
    const uint8_t code = codes[i / 2] >> (i % 2 * 4) & 15;
    out[i] = kMxfp4Doubled[code] * Mxfp4HalfScale(scales[i / kMxfp4Group]);
  }
}

}  // namespace talon
