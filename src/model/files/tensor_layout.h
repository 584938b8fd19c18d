// The tensors that a model of a given configuration consists of: their names in Hugging Face files
// and their shapes. Projections that run as one matrix are listed together, in stacking order.
#ifndef TALON_MODEL_FILES_TENSOR_LAYOUT_H_
#define TALON_MODEL_FILES_TENSOR_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/ranks/segments.h"
#include "model/config.h"

namespace talon {

// How files hold the matrices of a layer's experts.
enum class ExpertTensors {
  kSeparate,    // a tensor for each projection of each expert
  kStacked,     // [experts, outputs, inputs], gate over up
  kInputFirst,  // [experts, inputs, outputs]
  kMxfp4        // [experts, outputs, inputs] as NAME_blocks and NAME_scales (mxfp4.h)
};

struct TensorSpec {
  std::string name;
  // [outputs, inputs] of a matrix, [size] of a vector; with `expert`, one more dimension in front.
  std::vector<int64_t> shape;
  int expert = -1;  // index in its stack; -1: the tensor is not a stack
  ExpertTensors form = ExpertTensors::kStacked;  // form of a stack's matrices
  // The part that a rank takes of it: outputs and inputs of a matrix, or (only_cols) elements of a
  // vector. The shape is that of the whole.
  std::optional<IndexRange> only_rows, only_cols;

  bool is_matrix() const { return shape.size() == (expert < 0 ? 2 : 3); }
  bool input_first() const { return expert >= 0 && form == ExpertTensors::kInputFirst; }
  int64_t rows() const {
    if (!is_matrix()) return 1;
    return input_first() ? shape.back() : shape[shape.size() - 2];
  }
  int64_t cols() const {
    return is_matrix() && input_first() ? shape[shape.size() - 2] : shape.back();
  }
};

// Stacked along the outputs; empty where the model has no such tensor.
using TensorParts = std::vector<TensorSpec>;

struct MlpLayout {
  TensorParts gate_up, gate_up_bias;
  TensorParts down, down_bias;
  std::vector<int> down_bounds;  // segments of its inputs; empty: not summed in segments
};

struct LayerLayout {
  TensorParts input_norm, post_norm;
  TensorParts qkv, qkv_bias;
  TensorParts q_norm, k_norm;
  TensorParts output, output_bias;
  std::vector<int> output_bounds;  // as MlpLayout::down_bounds
  TensorParts sinks;
  MlpLayout mlp;  // for a dense layer, empty in a sparse one
  TensorParts router, router_bias;
  std::vector<MlpLayout> experts;
};

struct TensorLayout {
  TensorParts embedding;
  std::vector<LayerLayout> layers;
  TensorParts final_norm;
  TensorParts head;  // the embedding where the two are tied

  // All of them, each once: a stack as its first expert's.
  std::vector<TensorSpec> All() const;
};

// Segments of the inner values of a dense MLP, as many as the model can have ranks. Weights of
// every format can be cut between them.
std::vector<int> MlpBounds(const ModelConfig& config);

TensorLayout LayoutOf(const ModelConfig& config, ExpertTensors experts = ExpertTensors::kSeparate);

}  // namespace talon

#endif  // TALON_MODEL_FILES_TENSOR_LAYOUT_H_
