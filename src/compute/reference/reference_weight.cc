#include "compute/reference/reference_weight.h"

#include <algorithm>
#include <cmath>

#include "compute/weight_parts.h"

namespace talon {
namespace {

// The type elements are rounded to; int8 starts from the values as stored.
DType RoundedType(std::span<const HostMatrix> parts, WeightFormat format) {
  return format == WeightFormat::kInt8 ? DType::kF32 : StoredWeightType(parts, format);
}

float Rounded(float value, DType dtype) {
  uint32_t storage = 0;
  StoreElement(&storage, dtype, 0, value);
  return LoadElement(&storage, dtype, 0);
}

}  // namespace

void QuantiseInPlace(std::span<float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  if (largest == 0) return;
  const double scale = largest / 127;
  for (float& value : values) value = static_cast<float>(std::nearbyint(value / scale) * scale);
}

Result<std::unique_ptr<Weight>> ReferenceWeight::Pack(std::span<const HostMatrix> parts,
                                                      WeightFormat format) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  const DType storage = RoundedType(parts, format);
  auto weight = std::make_unique<ReferenceWeight>();
  weight->cols_ = static_cast<int>(parts[0].cols);
  weight->quantised_ = format == WeightFormat::kInt8;
  for (const HostMatrix& part : parts) {
    for (int64_t i = 0; i < part.rows * part.cols; ++i) {
      weight->values_.push_back(Rounded(LoadElement(part.data, part.dtype, i), storage));
    }
    weight->rows_ += static_cast<int>(part.rows);
  }
  if (weight->quantised_) {
    for (int row = 0; row < weight->rows_; ++row) {
      const size_t cols = static_cast<size_t>(weight->cols_);
      QuantiseInPlace(std::span(weight->values_).subspan(row * cols, cols));
    }
  }
  weight->bytes_ = weight->quantised_ ? weight->values_.size() + sizeof(float) * weight->rows_
                                      : weight->values_.size() * DTypeSize(storage);
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace talon
