// 4-bit weights: symmetric codes in [-8, 7] with one bf16 scale for each group of 32 inputs of an
// output, 4.5 bits a weight. Every backend that keeps int4 rounds with this function, so their
// weights are the same.
#ifndef TALON_COMPUTE_INT4_H_
#define TALON_COMPUTE_INT4_H_

#include <cstdint>

namespace talon {

constexpr int kInt4Group = 32;  // inputs that share a scale

struct Int4Weights {
  int8_t codes[kInt4Group];  // in [-8, 7]; value i is about codes[i] * scale
  float scale;               // a bf16; either sign. NaN if a value is NaN or infinite
};

// The codes of `count` values (1..kInt4Group, the rest become 0) with the scale that, of several
// near the one that just fits the largest value, has the least squared error.
Int4Weights QuantizeInt4(const float* values, int count);

}  // namespace talon

#endif  // TALON_COMPUTE_INT4_H_
