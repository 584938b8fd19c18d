#include "model/files/golden_file.h"

#include <cmath>
#include <cstring>

namespace talon {

Result<GoldenFile> GoldenFile::Open(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::OpenFile(path));
  return GoldenFile(std::move(reader), path);
}

std::vector<std::string> GoldenFile::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : reader_.tensors()) names.push_back(name);
  return names;
}

Result<const TensorView*> GoldenFile::Get(const std::string& name, DType dtype) const {
  const TensorView* tensor = reader_.Find(name);
  if (tensor == nullptr) return InvalidArgument("{}: tensor {} is missing", path_, name);
  if (tensor->dtype != dtype) {
    return InvalidArgument("{}: tensor {} has dtype {}, expected {}", path_, name,
                           DTypeName(tensor->dtype), DTypeName(dtype));
  }
  return tensor;
}

Result<std::vector<int32_t>> GoldenFile::Ints(const std::string& name) const {
  TALON_ASSIGN_OR_RETURN(const TensorView* tensor, Get(name, DType::kI32));
  if (tensor->shape.size() != 1 || tensor->shape[0] == 0) {
    return InvalidArgument("{}: tensor {} has shape {}, expected one dimension", path_, name,
                           ShapeString(tensor->shape));
  }
  std::vector<int32_t> values(static_cast<size_t>(tensor->NumElements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

Result<std::vector<float>> GoldenFile::Floats(const std::string& name,
                                              const std::vector<int64_t>& shape) const {
  TALON_ASSIGN_OR_RETURN(const TensorView* tensor, Get(name, DType::kF32));
  if (tensor->shape != shape) {
    return InvalidArgument("{}: tensor {} has shape {}, the model gives {}", path_, name,
                           ShapeString(tensor->shape), ShapeString(shape));
  }
  std::vector<float> values(static_cast<size_t>(tensor->NumElements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

double MaxAbsError(std::span<const float> got, std::span<const float> expected) {
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= largest)) largest = error;
    if (std::isnan(largest)) return largest;
  }
  return largest;
}

GoldenCase CompareFloats(std::string name, std::span<const float> got,
                         std::span<const float> expected, double tolerance) {
  const double error = MaxAbsError(got, expected);
  return {std::move(name), error <= tolerance,
          fmt::format("max abs error {:.2g} (limit {:.2g})", error, tolerance)};
}

GoldenCase CompareInts(std::string name, std::span<const int32_t> got,
                       std::span<const int32_t> expected, const char* unit) {
  size_t equal = 0;
  while (equal < expected.size() && equal < got.size() && got[equal] == expected[equal]) ++equal;
  const bool passed = equal == expected.size() && got.size() == expected.size();
  std::string detail = fmt::format("{} of {} {} equal", equal, expected.size(), unit);
  if (!passed && equal < expected.size() && equal < got.size()) {
    detail += fmt::format(", then {} instead of {}", got[equal], expected[equal]);
  } else if (!passed) {
    detail += fmt::format(", got {}", got.size());
  }
  return {std::move(name), passed, detail};
}

}  // namespace talon
