// MXFP4 weights as gpt_oss files hold them: 4-bit floats in groups of 32 inputs of an output, each
// group with an 8-bit exponent. A group's 16 bytes hold two codes each, the first in the low half.
#ifndef TALON_COMPUTE_MXFP4_H_
#define TALON_COMPUTE_MXFP4_H_

#include <cstdint>

namespace talon {

constexpr int kMxfp4Group = 32;                    // inputs that share a scale
constexpr int kMxfp4GroupBytes = kMxfp4Group / 2;  // bytes of a group's codes
// Twice the value of each code, a whole number: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the negative ones.
constexpr int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(exponent - 128), the factor of a group's doubled values; NaN for 255, as the format says.
float Mxfp4HalfScale(uint8_t exponent);

// The values of `cols` inputs, a multiple of the group.
void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out);

}  // namespace talon

#endif  // TALON_COMPUTE_MXFP4_H_
