#include "model/files/weight_loader.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "compute/mxfp4.h"

namespace talon {
namespace {

bool IsFloat(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

}  // namespace

Result<Buffer> WeightLoader::Vector(const TensorParts& parts, float scale) {
  std::vector<float> values;
  for (const TensorSpec& part : parts) {
    TALON_ASSIGN_OR_RETURN(const HostMatrix vector, source_->Load(part));
    for (int64_t i = 0; i < vector.rows * vector.cols; ++i) {
      values.push_back(scale * LoadElement(vector.data, vector.dtype, i));
    }
  }
  source_->Release();
  if (values.empty()) return Buffer();
  return Upload(values.data(), values.size() * sizeof(float));
}

Result<std::unique_ptr<Weight>> WeightLoader::Matrix(const TensorParts& parts) {
  return Load(parts, format_);
}

Result<std::unique_ptr<Weight>> WeightLoader::ExactMatrix(const TensorParts& parts) {
  return Load(parts, WeightFormat::kF32);
}

Result<std::unique_ptr<Weight>> WeightLoader::Load(const TensorParts& parts, WeightFormat format) {
  std::vector<HostMatrix> matrices;
  for (const TensorSpec& part : parts) {
    TALON_ASSIGN_OR_RETURN(const HostMatrix matrix, source_->Load(part));
    matrices.push_back(matrix);
  }
  auto packed = Pack(matrices, format);
  source_->Release();
  return packed;
}

Result<std::unique_ptr<Weight>> WeightLoader::Columns(const TensorSpec& spec, int first,
                                                      int count) {
  TALON_ASSIGN_OR_RETURN(const HostMatrix matrix, source_->Load(spec));
  const size_t element = DTypeSize(matrix.dtype);
  std::vector<uint8_t> columns;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const uint8_t* from = static_cast<const uint8_t*>(matrix.data) +
                          static_cast<size_t>(row * matrix.cols + first) * element;
    columns.insert(columns.end(), from, from + static_cast<size_t>(count) * element);
  }
  source_->Release();
  const HostMatrix part{columns.data(), matrix.dtype, matrix.rows, count};
  return Pack({&part, 1}, format_);
}

Result<WeightTable> WeightLoader::Table(const TensorParts& parts, std::unique_ptr<Weight>* tied) {
  TALON_ASSIGN_OR_RETURN(const HostMatrix table, source_->Load(parts[0]));
  const auto elements = static_cast<size_t>(table.rows) * static_cast<size_t>(table.cols);
  WeightTable result;
  TALON_ASSIGN_OR_RETURN(result.data, Upload(table.data, elements * DTypeSize(table.dtype)));
  result.dtype = table.dtype;
  if (tied != nullptr) {
    TALON_ASSIGN_OR_RETURN(*tied, Pack({&table, 1}, format_));
  }
  source_->Release();
  return result;
}

Result<Buffer> WeightLoader::Upload(const void* data, size_t bytes) {
  TALON_ASSIGN_OR_RETURN(Buffer buffer, backend_->Allocate(bytes));
  backend_->CopyIn(buffer.data(), data, bytes);
  other_bytes_ += bytes;
  return buffer;
}

Result<std::unique_ptr<Weight>> WeightLoader::Pack(std::span<const HostMatrix> parts,
                                                   WeightFormat format) {
  // Files may mix types; a stack of them is kept exactly.
  const bool mixed = std::ranges::any_of(
      parts, [&](const HostMatrix& part) { return part.dtype != parts[0].dtype; });
  const bool quantised = std::ranges::any_of(parts, &HostMatrix::expanded);
  if (format == WeightFormat::kAsStored && quantised) format = WeightFormat::kBF16;
  if (format == WeightFormat::kAsStored && mixed) format = WeightFormat::kF32;
  std::vector<float> expanded;
  HostMatrix whole = parts[0];
  if (parts[0].dtype == DType::kMxfp4 && IsFloat(format)) {
    expanded.resize(static_cast<size_t>(whole.rows * whole.cols));
    ExpandMxfp4(static_cast<const uint8_t*>(whole.data), whole.scales, whole.rows * whole.cols,
                expanded.data());
    whole = {.data = expanded.data(), .dtype = DType::kF32, .rows = whole.rows, .cols = whole.cols};
    parts = {&whole, 1};
  }
  TALON_ASSIGN_OR_RETURN(std::unique_ptr<Weight> weight, backend_->PackWeight(parts, format));
  matrix_bytes_ += weight->bytes();
  return weight;
}

}  // namespace talon
