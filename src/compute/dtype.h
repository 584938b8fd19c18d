// Element types of tensors in files, weights and caches.
#ifndef TALON_COMPUTE_DTYPE_H_
#define TALON_COMPUTE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace talon {

// kI4 and kMxfp4 (mxfp4.h) are known in weights only: they have no size of whole bytes, and no file
// names them.
enum class DType {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kF8E4M3,
  kI4,
  kMxfp4
};

size_t DTypeSize(DType dtype);       // REQUIRES: not kI4, kMxfp4
const char* DTypeName(DType dtype);  // "f32", "bf16", ...
// Accepts the names above but i4 and mxfp4, in either case ("F32", "BF16"); false if unknown.
bool ParseDType(std::string_view name, DType* dtype);

// Scalar conversions, exact or round-to-nearest-even.
inline float F32FromBF16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t BF16FromF32(float value);
float F32FromF16(uint16_t bits);
uint16_t F16FromF32(float value);

// Element `index` of an array of `dtype` (kF32, kF16, kBF16) as a float, and back.
float LoadElement(const void* data, DType dtype, int64_t index);
void StoreElement(void* data, DType dtype, int64_t index, float value);

}  // namespace talon

#endif  // TALON_COMPUTE_DTYPE_H_
