// Reference tensors of a golden file, and comparisons with them.
#ifndef TALON_MODEL_FILES_GOLDEN_FILE_H_
#define TALON_MODEL_FILES_GOLDEN_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/files/safetensors.h"

namespace talon {

struct GoldenCase {
  std::string name;  // "short logits"
  bool passed = false;
  std::string detail;  // "max abs error 3.1e-06 (limit 2e-04)"
};

// The file's tensors as typed arrays, shapes checked.
class GoldenFile {
 public:
  static Result<GoldenFile> Open(const std::string& path);

  bool Has(const std::string& name) const { return reader_.Find(name) != nullptr; }
  const std::string& path() const { return path_; }
  std::vector<std::string> Names() const;

  // i32, one dimension, not empty.
  Result<std::vector<int32_t>> Ints(const std::string& name) const;
  // f32 of that shape.
  Result<std::vector<float>> Floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

 private:
  GoldenFile(SafetensorsReader reader, std::string path)
      : reader_(std::move(reader)), path_(std::move(path)) {}
  Result<const TensorView*> Get(const std::string& name, DType dtype) const;

  SafetensorsReader reader_;
  std::string path_;
};

// NaN where either side has one that the other has not, so that it fails every limit.
double MaxAbsError(std::span<const float> got, std::span<const float> expected);

// REQUIRES: got.size() >= expected.size().
GoldenCase CompareFloats(std::string name, std::span<const float> got,
                         std::span<const float> expected, double tolerance);

// `unit` names the elements in the detail: "tokens".
GoldenCase CompareInts(std::string name, std::span<const int32_t> got,
                       std::span<const int32_t> expected, const char* unit);

}  // namespace talon

#endif  // TALON_MODEL_FILES_GOLDEN_FILE_H_
