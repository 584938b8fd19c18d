#include "compute/weight_parts.h"

#include <algorithm>
#include <cstdint>

#include "compute/fp8.h"
#include "compute/mxfp4.h"

namespace talon {
namespace {

constexpr int64_t kMaxDimension = 1 << 30;

}  // namespace

Status CheckWeightParts(std::span<const HostMatrix> parts) {
  if (parts.empty()) return InvalidArgument("weight: no parts");
  int64_t rows = 0;
  for (const HostMatrix& part : parts) {
    if (part.dtype == DType::kMxfp4) {
      if (parts.size() > 1 || part.scales == nullptr || part.cols % kMxfp4Group != 0) {
        return InvalidArgument(
            "weight: {} parts of mxfp4 with {} columns, expected one of whole "
            "groups of {}",
            parts.size(), part.cols, kMxfp4Group);
      }
    } else if (part.dtype != DType::kF32 && part.dtype != DType::kF16 &&
               part.dtype != DType::kBF16) {
      return InvalidArgument("weight: cannot pack type {}", DTypeName(part.dtype));
    }
    if (part.cols != parts[0].cols) {
      return InvalidArgument("weight: parts of {} and {} columns", parts[0].cols, part.cols);
    }
    if (part.rows < 1 || part.cols < 1 || part.rows > kMaxDimension || part.cols > kMaxDimension) {
      return InvalidArgument("weight: shape {} x {}", part.rows, part.cols);
    }
    rows += part.rows;
  }
  if (rows > kMaxDimension) return InvalidArgument("weight: {} rows", rows);
  return OkStatus();
}

DType StoredWeightType(std::span<const HostMatrix> parts, WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return DType::kF32;
    case WeightFormat::kF16:
      return DType::kF16;
    case WeightFormat::kBF16:
      return DType::kBF16;
    case WeightFormat::kFp8:
      return DType::kF8E4M3;
    case WeightFormat::kInt8:
      return DType::kI8;
    case WeightFormat::kInt4:
      return DType::kI4;
    case WeightFormat::kAsStored:
      break;
  }
  for (const HostMatrix& part : parts) {
    if (part.expanded) return DType::kBF16;
  }
  for (const HostMatrix& part : parts) {
    if (part.dtype != parts[0].dtype) return DType::kF32;
  }
  return parts[0].dtype;
}

bool HasFp8Activations(std::span<const HostMatrix> parts, WeightFormat format,
                       ActivationFormat activations) {
  if (activations != ActivationFormat::kFp8) return false;
  return std::ranges::all_of(parts, [&](const HostMatrix& part) {
    if (part.dtype == DType::kMxfp4) return false;
    if (format != WeightFormat::kAsStored) return format == WeightFormat::kFp8;
    const QuantGrid* grid = part.grid.get();
    return grid != nullptr && grid->dtype == DType::kF8E4M3 &&
           grid->group == parts[0].grid->group &&
           (grid->group >= part.cols || grid->group % kFp8Group == 0);
  });
}

}  // namespace talon
