// FP8 e4m3 without infinities: four bits of exponent with bias 7, three of fraction.
#ifndef TALON_COMPUTE_FP8_H_
#define TALON_COMPUTE_FP8_H_

#include <cstdint>
#include <span>

namespace talon {

constexpr float kLargestE4M3 = 448;

float FromE4M3(uint8_t bits);
// Replaces the values of an output by the nearest that FP8 with one scale can represent.
void RoundToFp8(std::span<float> values);

}  // namespace talon

#endif  // TALON_COMPUTE_FP8_H_
