// The tensors that a model of a given configuration consists of: their names in Hugging Face files
// and their shapes. Projections that run as one matrix are listed together, in stacking order.
#ifndef TALON_MODEL_FILES_TENSOR_LAYOUT_H_
#define TALON_MODEL_FILES_TENSOR_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace talon {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // [outputs, inputs] of a matrix, [size] of a vector

  int64_t rows() const { return shape.size() == 2 ? shape[0] : 1; }
  int64_t cols() const { return shape.back(); }
};

// Stacked along the outputs; empty where the model has no such tensor.
using TensorParts = std::vector<TensorSpec>;

struct LayerLayout {
  TensorParts input_norm, post_norm;
  TensorParts qkv, qkv_bias;
  TensorParts q_norm, k_norm;
  TensorParts output, output_bias;
  TensorParts gate_up, gate_up_bias;
  TensorParts down, down_bias;
};

struct TensorLayout {
  TensorParts embedding;
  std::vector<LayerLayout> layers;
  TensorParts final_norm;
  TensorParts head;  // the embedding where the two are tied

  // All of them, each once.
  std::vector<TensorSpec> All() const;
};

TensorLayout LayoutOf(const ModelConfig& config);

}  // namespace talon

#endif  // TALON_MODEL_FILES_TENSOR_LAYOUT_H_
