// Weights of quantised checkpoints, as values and the grid that they lie on: FP8 (scales for a
// tensor, for outputs or for blocks), GPTQ, AWQ, and compressed-tensors' FP8, int8 and packed int4
// or int8.
//
// A matrix X is X.weight with scales beside it, X.qweight (GPTQ, AWQ) or X.weight_packed. What a
// checkpoint left in a float type is loaded as it is.
#ifndef TALON_MODEL_FILES_QUANTISED_H_
#define TALON_MODEL_FILES_QUANTISED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "compute/matrix.h"
#include "model/files/quant_config.h"
#include "model/files/safetensors.h"

namespace talon {

// One matrix of a file in its quantised form: found, and its tensors checked against each other.
class QuantisedMatrix {
 public:
  // The matrix ("....weight") that a tensor of such a form belongs to; "" for other tensors.
  static std::string MatrixOf(const std::string& tensor);
  // Whether the file holds the matrix `name` ("....weight") in such a form.
  static bool IsIn(const SafetensorsReader& reader, const std::string& name);
  // [rows, cols] = [outputs, inputs], as the configuration has them.
  static Result<QuantisedMatrix> Open(const SafetensorsReader& reader, const QuantConfig& config,
                                      const std::string& name, int64_t rows, int64_t cols);

  // out [rows, cols]: scale * (code - zero).
  void Expand(ThreadPool* pool, float* out) const;
  // The grid of these values; null where their groups are not runs of inputs, or codes of more than
  // four bits have zeros.
  std::shared_ptr<const QuantGrid> Grid() const;
  const TensorView& codes() const { return *codes_; }

 private:
  enum class Form { kFloat8, kInt8, kPackedInputs, kGptq, kAwq };
  class Opener;

  template <Form kForm>
  void ExpandRow(int64_t row, float* out) const;
  template <Form kForm>
  float Code(int64_t row, int64_t col) const;
  uint32_t Word(int64_t index) const;

  Form form_ = Form::kFloat8;
  int bits_ = 8;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  const TensorView* codes_ = nullptr;
  // Input i belongs to group group_of_[i]; rows in blocks of row_block_ share their scales.
  std::vector<int32_t> group_of_;
  int64_t groups_ = 1;
  int64_t row_block_ = 1;
  std::vector<float> scales_;  // [ceil(rows / row_block)][groups]
  std::vector<float> zeros_;   // the same, or empty: zero_
  float zero_ = 0;
};

}  // namespace talon

#endif  // TALON_MODEL_FILES_QUANTISED_H_
