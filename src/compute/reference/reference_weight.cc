#include "compute/reference/reference_weight.h"

#include <algorithm>
#include <cmath>

namespace talon {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// The type elements are rounded to; int8 starts from the values as stored.
DType StorageType(std::span<const HostMatrix> parts, WeightFormat format) {
  if (format == WeightFormat::kF16) return DType::kF16;
  if (format == WeightFormat::kBF16) return DType::kBF16;
  if (format != WeightFormat::kAsStored) return DType::kF32;
  for (const HostMatrix& part : parts) {
    if (part.dtype != parts[0].dtype) return DType::kF32;
  }
  return parts[0].dtype;
}

Status CheckParts(std::span<const HostMatrix> parts) {
  if (parts.empty()) return InvalidArgument("weight: no parts");
  for (const HostMatrix& part : parts) {
    if (!IsFloat(part.dtype)) return InvalidArgument("weight: dtype {}", DTypeName(part.dtype));
    if (part.cols != parts[0].cols) {
      return InvalidArgument("weight: parts with {} and {} columns", parts[0].cols, part.cols);
    }
    if (part.rows <= 0 || part.cols <= 0) {
      return InvalidArgument("weight: shape [{}, {}]", part.rows, part.cols);
    }
  }
  return OkStatus();
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
  TALON_RETURN_IF_ERROR(CheckParts(parts));
  const DType storage = StorageType(parts, format);
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
