#include "model/files/weight_loader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "compute/mxfp4.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

bool IsFloat(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

// The grid of some rows. That of some columns is given up: their values are bf16, as on the grid.
std::shared_ptr<const QuantGrid> CutGrid(const HostMatrix& matrix, const TensorSpec& spec) {
  if (matrix.grid == nullptr || spec.only_cols) return nullptr;
  const int64_t groups = CeilDiv(matrix.cols, matrix.grid->group);
  auto grid = std::make_shared<QuantGrid>(
      QuantGrid{.dtype = matrix.grid->dtype, .group = matrix.grid->group});
  const auto cut = [&](const std::vector<float>& all) -> std::vector<float> {
    if (all.empty()) return {};
    return {all.begin() + spec.only_rows->first * groups,
            all.begin() + spec.only_rows->last * groups};
  };
  grid->scales = cut(matrix.grid->scales);
  grid->zeros = cut(matrix.grid->zeros);
  return grid;
}

// Outputs of the matrix that the parts are cut from.
int WholeRows(const TensorParts& parts) {
  int64_t rows = 0;
  for (const TensorSpec& part : parts) rows += part.rows();
  return static_cast<int>(rows);
}

}  // namespace

Result<HostMatrix> WeightLoader::Take(const TensorSpec& spec) {
  TALON_ASSIGN_OR_RETURN(const HostMatrix matrix, source_->Load(spec));
  return Cut(matrix, spec);
}

// Rows are a part of the mapped file; columns are copied, so that only their pages are read.
HostMatrix WeightLoader::Cut(const HostMatrix& matrix, const TensorSpec& spec) {
  if (!spec.only_rows && !spec.only_cols) return matrix;
  TALON_CHECK(matrix.dtype != DType::kMxfp4, "{} cannot be cut", spec.name);
  const auto element = static_cast<int64_t>(DTypeSize(matrix.dtype));
  HostMatrix part = matrix;
  part.grid = CutGrid(matrix, spec);
  if (spec.only_rows) {
    part.rows = spec.only_rows->count();
    part.data =
        static_cast<const uint8_t*>(matrix.data) + spec.only_rows->first * matrix.cols * element;
  }
  if (!spec.only_cols) return part;
  part.cols = spec.only_cols->count();
  const int64_t bytes = part.cols * element;
  auto& copy = copies_.emplace_back(CeilDiv(part.rows * bytes, 8));
  const auto* from = static_cast<const uint8_t*>(part.data) + spec.only_cols->first * element;
  for (int64_t row = 0; row < part.rows; ++row, from += matrix.cols * element) {
    std::memcpy(reinterpret_cast<uint8_t*>(copy.data()) + row * bytes, from, bytes);
  }
  part.data = copy.data();
  return part;
}

void WeightLoader::Release() {
  source_->Release();
  copies_.clear();
}

Result<Buffer> WeightLoader::Vector(const TensorParts& parts, float scale) {
  std::vector<float> values;
  for (const TensorSpec& part : parts) {
    TALON_ASSIGN_OR_RETURN(const HostMatrix vector, Take(part));
    for (int64_t i = 0; i < vector.rows * vector.cols; ++i) {
      values.push_back(scale * LoadElement(vector.data, vector.dtype, i));
    }
  }
  Release();
  if (values.empty()) return Buffer();
  return Upload(values.data(), values.size() * sizeof(float));
}

Result<std::unique_ptr<Weight>> WeightLoader::Matrix(const TensorParts& parts,
                                                     const WeightUse& use) {
  WeightUse whole = use;
  whole.whole_rows = WholeRows(parts);
  return Load(parts, format_, whole);
}

Result<std::unique_ptr<Weight>> WeightLoader::LayerMatrix(const TensorParts& parts, WeightUse use) {
  use.activations = activations_;
  return Matrix(parts, use);
}

Result<std::unique_ptr<Weight>> WeightLoader::ExactMatrix(const TensorParts& parts) {
  return Load(parts, WeightFormat::kF32);
}

Result<std::unique_ptr<Weight>> WeightLoader::Load(const TensorParts& parts, WeightFormat format,
                                                   const WeightUse& use) {
  std::vector<HostMatrix> matrices;
  for (const TensorSpec& part : parts) {
    TALON_ASSIGN_OR_RETURN(const HostMatrix matrix, Take(part));
    matrices.push_back(matrix);
  }
  auto packed = Pack(matrices, format, use);
  Release();
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
  const HostMatrix part{.data = columns.data(),
                        .dtype = matrix.dtype,
                        .rows = matrix.rows,
                        .cols = count,
                        .expanded = matrix.expanded};
  return Pack({&part, 1}, format_);
}

Result<WeightTable> WeightLoader::Table(const TensorParts& parts) {
  return TiedTable(parts, parts[0], nullptr);
}

Result<WeightTable> WeightLoader::TiedTable(const TensorParts& parts, const TensorSpec& head,
                                            std::unique_ptr<Weight>* tied) {
  TALON_ASSIGN_OR_RETURN(const HostMatrix table, source_->Load(parts[0]));
  const auto elements = static_cast<size_t>(table.rows) * static_cast<size_t>(table.cols);
  WeightTable result;
  TALON_ASSIGN_OR_RETURN(result.data, Upload(table.data, elements * DTypeSize(table.dtype)));
  result.dtype = table.dtype;
  if (tied != nullptr) {
    const HostMatrix part = Cut(table, head);
    const WeightUse use{.whole_rows = static_cast<int>(table.rows)};
    TALON_ASSIGN_OR_RETURN(*tied, Pack({&part, 1}, format_, use));
  }
  Release();
  return result;
}

Result<Buffer> WeightLoader::Upload(const void* data, size_t bytes) {
  TALON_ASSIGN_OR_RETURN(Buffer buffer, backend_->Allocate(bytes));
  backend_->CopyIn(buffer.data(), data, bytes);
  other_bytes_ += bytes;
  return buffer;
}

Result<std::unique_ptr<Weight>> WeightLoader::Pack(std::span<const HostMatrix> parts,
                                                   WeightFormat format, const WeightUse& use) {
  std::vector<float> expanded;
  HostMatrix whole = parts[0];
  if (parts[0].dtype == DType::kMxfp4 && IsFloat(format)) {
    expanded.resize(static_cast<size_t>(whole.rows * whole.cols));
    ExpandMxfp4(static_cast<const uint8_t*>(whole.data), whole.scales, whole.rows * whole.cols,
                expanded.data());
    whole = {.data = expanded.data(), .dtype = DType::kF32, .rows = whole.rows, .cols = whole.cols};
    parts = {&whole, 1};
  }
  TALON_ASSIGN_OR_RETURN(std::unique_ptr<Weight> weight, backend_->PackWeight(parts, format, use));
  if (HasFp8Activations(parts, format, use.activations)) ++fp8_products_;
  matrix_bytes_ += weight->bytes();
  return weight;
}

}  // namespace talon
