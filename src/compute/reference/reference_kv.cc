#include "compute/reference/reference_kv.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/fp8.h"

namespace talon {
namespace {

constexpr uint8_t kNotFinite = 255;

// The nearest of the numbers that a cache holds: integers, or e4m3 without subnormals.
double NearestNumber(DType dtype, double value) {
  if (dtype == DType::kI8) return std::nearbyint(value);
  const double magnitude = std::abs(value);
  constexpr double kLeast = 1.0 / 64;
  if (magnitude < kLeast) return std::copysign(magnitude > kLeast / 2 ? kLeast : 0, value);
  const int last = std::ilogb(magnitude) - 3;  // exponent of the last bit of fraction
  return std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
}

uint8_t CodeOf(DType dtype, double number) {
  if (dtype == DType::kI8) return static_cast<uint8_t>(static_cast<int>(number));
  const int sign = std::signbit(number) ? 128 : 0;
  if (number == 0) return static_cast<uint8_t>(sign);
  const int exponent = std::ilogb(number);
  const double fraction = std::ldexp(std::abs(number), 3 - exponent) - 8;
  return static_cast<uint8_t>(sign + (exponent + 7) * 8 + static_cast<int>(fraction));
}

}  // namespace

void ReferenceStore(const KvShape& shape, const float* from, const HostVector& to) {
  const int dim = shape.head_dim;
  if (!shape.quantised()) {
    for (int d = 0; d < dim; ++d) StoreElement(to.elements, shape.dtype, d, from[d]);
    return;
  }
  double largest = 0;
  bool finite = true;
  for (int d = 0; d < dim; ++d) {
    largest = std::max(largest, std::abs(double{from[d]}));
    finite &= std::isfinite(from[d]);
  }
  const double end = shape.dtype == DType::kI8 ? 127 : kLargestE4M3;
  int exponent = -120;
  while (finite && std::ldexp(end, exponent) < largest) ++exponent;
  *to.scale = finite ? static_cast<uint8_t>(exponent + 127) : kNotFinite;
  for (int d = 0; d < dim; ++d) {
    const double scaled = finite ? std::ldexp(double{from[d]}, -exponent) : 0;
    to.elements[d] = CodeOf(shape.dtype, NearestNumber(shape.dtype, scaled));
  }
}

float ReferenceLoad(const KvShape& shape, const HostVector& from, int d) {
  if (!shape.quantised()) return LoadElement(from.elements, shape.dtype, d);
  if (*from.scale == kNotFinite) return std::numeric_limits<float>::quiet_NaN();
  const uint8_t code = from.elements[d];
  const double value = shape.dtype == DType::kI8 ? static_cast<int8_t>(code) : FromE4M3(code);
  return static_cast<float>(std::ldexp(value, *from.scale - 127));
}

}  // namespace talon
