#include "compute/cpu/matmul/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "compute/cpu/vector_clones.h"

namespace talon {
namespace {

constexpr int64_t kChunk = 512;  // elements converted at a time, a multiple of every group

// The largest magnitude as bits, which order like magnitudes with NaN above infinity. Several
// running maxima, so that steps do not wait for each other.
TALON_VECTOR_CLONES int32_t MaxMagnitudeBits(const float* from, int64_t count) {
  constexpr int kMaxima = 16;
  constexpr int32_t kMagnitude = 0x7FFFFFFF;
  int32_t largest[kMaxima] = {};
  const int64_t whole = count / kMaxima * kMaxima;
  for (int64_t i = 0; i < whole; i += kMaxima) {
    for (int j = 0; j < kMaxima; ++j) {
      largest[j] = std::max(largest[j], std::bit_cast<int32_t>(from[i + j]) & kMagnitude);
    }
  }
  int32_t result = *std::max_element(largest, largest + kMaxima);
  for (int64_t i = whole; i < count; ++i) {
    result = std::max(result, std::bit_cast<int32_t>(from[i]) & kMagnitude);
  }
  return result;
}

int32_t MaxMagnitude(const void* row, DType type, int64_t count) {
  if (type == DType::kF32) return MaxMagnitudeBits(static_cast<const float*>(row), count);
  float chunk[kChunk];
  int32_t largest = 0;
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = std::min(kChunk, count - i);
    ConvertToF32(static_cast<const uint16_t*>(row) + i, type, n, chunk);
    largest = std::max(largest, MaxMagnitudeBits(chunk, n));
  }
  return largest;
}

template <size_t kBytes>
void CopyGroups(const uint8_t* from, int64_t groups, uint8_t* to, int64_t stride) {
  for (int64_t g = 0; g < groups; ++g) std::memcpy(to + g * stride, from + g * kBytes, kBytes);
}

void StoreGroups(const uint8_t* from, int64_t groups, size_t bytes, uint8_t* to, int64_t stride) {
  if (stride == static_cast<int64_t>(bytes)) {
    std::memcpy(to, from, static_cast<size_t>(groups) * bytes);
  } else if (bytes == 64) {
    CopyGroups<64>(from, groups, to, stride);
  } else if (bytes == 32) {
    CopyGroups<32>(from, groups, to, stride);
  } else if (bytes == 8) {
    CopyGroups<8>(from, groups, to, stride);
  } else if (bytes == 4) {
    CopyGroups<4>(from, groups, to, stride);
  } else {
    TALON_DCHECK(bytes == 2);
    CopyGroups<2>(from, groups, to, stride);
  }
}

// Element `first` on of a row as floats: in place if they are, else converted into `chunk`.
const float* AsF32(const void* row, DType type, int64_t first, int64_t count, float* chunk) {
  if (type == DType::kF32) return static_cast<const float*>(row) + first;
  ConvertToF32(static_cast<const uint16_t*>(row) + first, type, count, chunk);
  return chunk;
}

// F32FromF16, F16FromF32 and BF16FromF32 without branches, so that they vectorise.
TALON_VECTOR_CLONES void ConvertF16ToF32(const uint16_t* __restrict from, int64_t count,
                                         float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t sign = (from[i] & 0x8000u) << 16;
    const uint32_t shifted = (from[i] & 0x7FFFu) << 13;  // the value times 2^-112
    const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1p112f);
    const uint32_t magnitude = shifted < (0x7C00u << 13) ? finite : shifted | 0x7F800000u;
    to[i] = std::bit_cast<float>(sign | magnitude);
  }
}

TALON_VECTOR_CLONES void ConvertF32ToF16(const float* __restrict from, int64_t count,
                                         uint16_t* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    const uint32_t normal =
        (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (uint32_t{112} << 23)) >> 13;
    // Next to 0.5 the last bit of a float is 2^-24, the unit of subnormal f16.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
    const uint32_t special = magnitude > 0x7F800000 ? 0x7E00 : 0x7C00;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    to[i] =
        static_cast<uint16_t>((bits >> 16 & 0x8000) | (magnitude < 0x47800000 ? finite : special));
  }
}

TALON_VECTOR_CLONES void ConvertF32ToBF16(const float* __restrict from, int64_t count,
                                          uint16_t* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    to[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
  }
}

// `count` elements converted to the row's type, at `packed`.
void ConvertChunk(const float* values, int64_t count, const InterleavedRow& row, uint8_t* packed) {
  if (row.type == DType::kI8) {
    QuantizeInt8(values, count, row.inverse_scale, reinterpret_cast<int8_t*>(packed));
    return;
  }
  float scaled[kChunk];
  if (row.inverse_scale != 1) {
    for (int64_t i = 0; i < count; ++i) scaled[i] = values[i] * row.inverse_scale;
    values = scaled;
  }
  ConvertFromF32(values, count, row.type, packed);
}

}  // namespace

RowScale ChooseInt8Scale(const void* row, DType type, int64_t count) {
  const float largest = std::bit_cast<float>(MaxMagnitude(row, type, count));
  if (!std::isfinite(largest)) {
    return {.scale = std::numeric_limits<float>::quiet_NaN(), .inverse = 0};
  }
  // Below this the inverse would overflow; such a row is zero for every purpose.
  if (largest < 1e-35f) return {};
  return {.scale = largest / 127, .inverse = 127 / largest};
}

RowScale ChooseF16Scale(const float* row, int64_t count) {
  const int32_t bits = MaxMagnitudeBits(row, count);
  const int exponent = (bits >> 23) - 127;
  if (exponent == 128) return {.scale = std::numeric_limits<float>::quiet_NaN(), .inverse = 0};
  if (exponent < -100) return {};
  return {.scale = std::ldexp(1.0f, exponent - 14), .inverse = std::ldexp(1.0f, 14 - exponent)};
}

TALON_VECTOR_CLONES void QuantizeInt8(const float* __restrict from, int64_t count, float inverse,
                                      int8_t* __restrict to) {
  // Added to a small number, 1.5 * 2^23 rounds it to an integer, ties to even, in the low bits. The
  // compiler vectorises this on every architecture.
  constexpr float kRounder = 12582912.0f;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<int8_t>(std::bit_cast<int32_t>(from[i] * inverse + kRounder));
  }
}

void ConvertToF32(const void* from, DType type, int64_t count, float* to) {
  const auto* halves = static_cast<const uint16_t*>(from);
  if (type == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type == DType::kF16) {
    ConvertF16ToF32(halves, count, to);
  } else {
    TALON_DCHECK(type == DType::kBF16);
    for (int64_t i = 0; i < count; ++i) to[i] = F32FromBF16(halves[i]);
  }
}

void ConvertFromF32(const float* from, int64_t count, DType type, void* to) {
  auto* halves = static_cast<uint16_t*>(to);
  if (type == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type == DType::kF16) {
    ConvertF32ToF16(from, count, halves);
  } else {
    TALON_DCHECK(type == DType::kBF16);
    ConvertF32ToBF16(from, count, halves);
  }
}

TALON_VECTOR_CLONES void PackRow(const void* from, DType type, int64_t count,
                                 const InterleavedRow& row) {
  const size_t element = DTypeSize(row.type);
  const size_t group_bytes = row.group * element;
  auto* to = static_cast<uint8_t*>(row.to);
  alignas(64) float floats[kChunk];
  alignas(64) uint8_t packed[kChunk * sizeof(float)];
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = std::min(kChunk, count - i);
    const float* values = AsF32(from, type, i, n, floats);
    ConvertChunk(values, n, row, packed);
    const int64_t groups = CeilDiv(n, row.group);
    std::memset(packed + n * element, 0, groups * group_bytes - n * element);
    if (row.flip != 0) {
      for (size_t b = 0; b < groups * group_bytes; ++b) packed[b] ^= row.flip;
    }
    StoreGroups(packed, groups, group_bytes, to + i / row.group * row.stride, row.stride);
  }
}

}  // namespace talon
