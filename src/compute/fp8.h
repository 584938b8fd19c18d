// FP8 e4m3 without infinities: four bits of exponent with bias 7, three of fraction.
#ifndef TALON_COMPUTE_FP8_H_
#define TALON_COMPUTE_FP8_H_

#include <bit>
#include <cstdint>
#include <span>

#include "compute/host_device.h"

namespace talon {

constexpr float kLargestE4M3 = 448;

float FromE4M3(uint8_t bits);
// Replaces the values of an output by the nearest that FP8 with one scale can represent.
void RoundToFp8(std::span<float> values);

// FP8 activations: kFp8Group inputs of a row share a scale, the least power of two with which the
// largest of them has a code, and at least 2^-100. So code times scale is a bf16, exactly.
constexpr int kFp8Group = 128;
struct Fp8Scale {
  float scale;
  float inverse;
};
// By the bits of the group's largest magnitude. Where it is not finite the scale is NaN.
TALON_HOST_DEVICE inline Fp8Scale Fp8ScaleOf(uint32_t largest) {
  constexpr uint32_t kLeast = 27, kInfinity = 0x7F800000;
  if (largest >= kInfinity) return {std::bit_cast<float>(kInfinity | 0x400000), 0};
  // Codes end at 1.75 * 2^8.
  const uint32_t exponent = (largest + 0x1FFFFF) >> 23;
  const uint32_t scale = exponent < kLeast + 8 ? kLeast : exponent - 8;
  return {std::bit_cast<float>(scale << 23), std::bit_cast<float>((254 - scale) << 23)};
}
// Replaces the values of a row by those that FP8 activations stand for: those of a group with an
// infinity or NaN by NaN.
void RoundActivationsToFp8(std::span<float> row);

}  // namespace talon

#endif  // TALON_COMPUTE_FP8_H_
