// Quantised K and V: a vector of head_dim elements as 8-bit codes and one scale, a power of two.
// Both depend on that vector alone, so neither on what is stored beside it nor on the pass that
// stored it.
//
// The scale is the exponent of a float with the bias 127 (E8M0). The codes are int8 in [-127, 127],
// or FP8 e4m3 without its subnormals, which lie 2^-14 below the vector's largest element. So code
// times scale is zero or a normal bf16, exactly: a quantised cache has the bits of a bf16 one whose
// elements were rounded. A vector with an element that is not finite has kNanKvScale and zeros as
// codes, and is NaN throughout.
#ifndef TALON_COMPUTE_KV_KV_CODES_H_
#define TALON_COMPUTE_KV_KV_CODES_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "compute/dtype.h"
#include "compute/host_device.h"

namespace talon {

inline constexpr uint8_t kNanKvScale = 255;
// Where every code of a vector is zero, and the least: products of codes with it are normal.
inline constexpr int kLeastKvScale = 7;

// The least scale with which `largest`, the bits of the largest magnitude of a vector, has a code.
TALON_HOST_DEVICE inline uint8_t KvScaleOf(DType dtype, uint32_t largest) {
  if (largest >= 0x7F800000) return kNanKvScale;
  // Codes end at 127 = 1.984375 * 2^6, or at 448 = 1.75 * 2^8.
  const bool fp8 = dtype == DType::kF8E4M3;
  const int carry = (largest & 0x7FFFFF) > (fp8 ? 0x600000u : 0x7E0000u) ? 1 : 0;
  const int scale = static_cast<int>(largest >> 23) - (fp8 ? 8 : 6) + carry;
  return static_cast<uint8_t>(scale < kLeastKvScale ? kLeastKvScale : scale);
}

// The factor of the elements before they get a code. REQUIRES: scale is not kNanKvScale.
TALON_HOST_DEVICE inline float InverseKvScale(uint8_t scale) {
  return std::bit_cast<float>(uint32_t{254u - scale} << 23);
}

// The code nearest to x, ties to even. REQUIRES: |x| <= 127, or 448.
TALON_HOST_DEVICE inline uint8_t Int8KvCode(float x) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(x + 12582912.0f));  // 1.5 * 2^23
}
TALON_HOST_DEVICE inline uint8_t Fp8KvCode(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t rounded = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20;
  constexpr uint32_t kLeast = 121 << 3;                              // 2^-6
  const uint32_t small = magnitude > (uint32_t{120} << 23) ? 8 : 0;  // nearer to 2^-6 than to 0
  const uint32_t code = rounded >= kLeast ? rounded - (120 << 3) : small;
  return static_cast<uint8_t>((bits >> 24 & 0x80) | code);
}

// Writes the codes and the scale of a vector. Its loops have no branches, so that they vectorise.
inline void QuantiseKv(const float* from, int head_dim, DType dtype, uint8_t* codes,
                       uint8_t* scale) {
  uint32_t largest = 0;
  for (int i = 0; i < head_dim; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7FFFFFFF);
  }
  *scale = KvScaleOf(dtype, largest);
  if (*scale == kNanKvScale) {
    std::memset(codes, 0, head_dim);
    return;
  }
  const float factor = InverseKvScale(*scale);
  if (dtype == DType::kI8) {
    for (int i = 0; i < head_dim; ++i) codes[i] = Int8KvCode(from[i] * factor);
  } else {
    for (int i = 0; i < head_dim; ++i) codes[i] = Fp8KvCode(from[i] * factor);
  }
}

// Code times scale.
TALON_HOST_DEVICE inline float KvValue(DType dtype, uint8_t code, uint8_t scale) {
  if (scale == kNanKvScale) return std::bit_cast<float>(0x7FC00000u);
  if (dtype == DType::kI8) {
    return static_cast<float>(static_cast<int8_t>(code)) *
           std::bit_cast<float>(uint32_t{scale} << 23);
  }
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t bits = magnitude == 0 ? 0 : (magnitude << 20) + (uint32_t{scale - 7u} << 23);
  return std::bit_cast<float>((code & 0x80u) << 24 | bits);
}

}  // namespace talon

#endif  // TALON_COMPUTE_KV_KV_CODES_H_
