#include "compute/reference/reference_weight.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "compute/fp8.h"
#include "compute/int4.h"
#include "compute/mxfp4.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

bool IsQuantised(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kInt8 ||
         format == WeightFormat::kInt4;
}

// The type elements are rounded to; the quantised formats start from the values as stored.
DType RoundedType(std::span<const HostMatrix> parts, WeightFormat format) {
  return IsQuantised(format) ? DType::kF32 : StoredWeightType(parts, format);
}

// Replaces the values of an output by the nearest that int4 can represent.
void RoundToInt4(std::span<float> row) {
  for (size_t k = 0; k < row.size(); k += kInt4Group) {
    const std::span group = row.subspan(k, std::min<size_t>(kInt4Group, row.size() - k));
    const Int4Weights weights = QuantizeInt4(group.data(), static_cast<int>(group.size()));
    for (size_t i = 0; i < group.size(); ++i) group[i] = weights.codes[i] * weights.scale;
  }
}

size_t KeptBytes(const ReferenceWeight& weight, WeightFormat format, DType storage) {
  const size_t rows = static_cast<size_t>(weight.rows());
  const size_t cols = static_cast<size_t>(weight.cols());
  if (format == WeightFormat::kInt8 || format == WeightFormat::kFp8)
    return rows * (cols + sizeof(float));
  if (format != WeightFormat::kInt4) return rows * cols * DTypeSize(storage);
  const size_t groups = CeilDiv(cols, kInt4Group);
  return rows * groups * (kInt4Group / 2 + sizeof(uint16_t));
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

void ForSegments(std::span<const int> bounds, std::span<float> values,
                 const std::function<void(std::span<float>)>& visit) {
  if (bounds.empty()) return visit(values);
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    visit(values.subspan(bounds[s], bounds[s + 1] - bounds[s]));
  }
}

std::unique_ptr<Weight> ReferenceWeight::Expanded(const HostMatrix& part) {
  auto weight = std::make_unique<ReferenceWeight>();
  weight->rows_ = static_cast<int>(part.rows);
  weight->cols_ = static_cast<int>(part.cols);
  weight->values_.resize(part.rows * part.cols);
  ExpandMxfp4(static_cast<const uint8_t*>(part.data), part.scales, part.rows * part.cols,
              weight->values_.data());
  weight->bytes_ = part.rows * part.cols / kMxfp4Group * (kMxfp4GroupBytes + 1);
  return weight;
}

Result<std::unique_ptr<Weight>> ReferenceWeight::Pack(std::span<const HostMatrix> parts,
                                                      WeightFormat format,
                                                      std::span<const int> bounds,
                                                      ActivationFormat activations) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  if (parts[0].dtype == DType::kMxfp4) return Expanded(parts[0]);
  const DType storage = RoundedType(parts, format);
  auto weight = std::make_unique<ReferenceWeight>();
  weight->cols_ = static_cast<int>(parts[0].cols);
  weight->quantised_ = IsQuantised(format) && format != WeightFormat::kFp8;
  weight->fp8_activations_ = HasFp8Activations(parts, format, activations);
  weight->bounds_.assign(bounds.begin(), bounds.end());
  for (const HostMatrix& part : parts) {
    for (int64_t i = 0; i < part.rows * part.cols; ++i) {
      weight->values_.push_back(Rounded(LoadElement(part.data, part.dtype, i), storage));
    }
    weight->rows_ += static_cast<int>(part.rows);
  }
  if (IsQuantised(format)) {
    for (int row = 0; row < weight->rows_; ++row) {
      const size_t cols = static_cast<size_t>(weight->cols_);
      const std::span values = std::span(weight->values_).subspan(row * cols, cols);
      ForSegments(bounds, values, [&](std::span<float> segment) {
        if (format == WeightFormat::kFp8) return RoundToFp8(segment);
        format == WeightFormat::kInt4 ? RoundToInt4(segment) : QuantiseInPlace(segment);
      });
    }
  }
  weight->bytes_ = KeptBytes(*weight, format, storage);
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace talon
