#include "compute/dtype.h"

#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <string>

#include "base/check.h"

namespace talon {
namespace {

struct DTypeInfo {
  DType dtype;
  const char* name;
  size_t size;
};

constexpr std::array<DTypeInfo, 13> kInfo = {{
    {DType::kF32, "f32", 4},
    {DType::kF16, "f16", 2},
    {DType::kBF16, "bf16", 2},
    {DType::kF64, "f64", 8},
    {DType::kI8, "i8", 1},
    {DType::kU8, "u8", 1},
    {DType::kI16, "i16", 2},
    {DType::kI32, "i32", 4},
    {DType::kI64, "i64", 8},
    {DType::kBool, "bool", 1},
    {DType::kF8E4M3, "f8_e4m3", 1},
    {DType::kI4, "i4", 0},
    {DType::kMxfp4, "mxfp4", 0},
}};

const DTypeInfo& Info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

}  // namespace

size_t DTypeSize(DType dtype) {
  TALON_DCHECK(dtype != DType::kI4 && dtype != DType::kMxfp4);
  return Info(dtype).size;
}
const char* DTypeName(DType dtype) { return Info(dtype).name; }

bool ParseDType(std::string_view name, DType* dtype) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const DTypeInfo& info : kInfo) {
    if (lower == info.name && info.size > 0) {
      *dtype = info.dtype;
      return true;
    }
  }
  return false;
}

uint16_t BF16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float F32FromF16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);  // zero and subnormals
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t F16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;   // NaN
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal: units of 2^-24, ties to even
    const float units = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return sign | static_cast<uint16_t>(std::nearbyint(units));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

float LoadElement(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kF16:
      return F32FromF16(static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return F32FromBF16(static_cast<const uint16_t*>(data)[index]);
    default:
      TALON_CHECK(false, "no float elements in {}", DTypeName(dtype));
  }
}

void StoreElement(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[index] = value;
      return;
    case DType::kF16:
      static_cast<uint16_t*>(data)[index] = F16FromF32(value);
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(data)[index] = BF16FromF32(value);
      return;
    default:
      TALON_CHECK(false, "no float elements in {}", DTypeName(dtype));
  }
}

}  // namespace talon
