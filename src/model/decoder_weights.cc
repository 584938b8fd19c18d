#include "model/decoder_weights.h"

#include <utility>

#include "model/files/tensor_layout.h"
#include "model/files/weight_loader.h"

namespace talon {

Result<LayerWeights> LoadLayerWeights(const LayerLayout& layout, WeightLoader* loader) {
  LayerWeights layer;
  TALON_ASSIGN_OR_RETURN(layer.input_norm, loader->Vector(layout.input_norm));
  TALON_ASSIGN_OR_RETURN(layer.qkv, loader->Matrix(layout.qkv));
  TALON_ASSIGN_OR_RETURN(layer.qkv_bias, loader->Vector(layout.qkv_bias));
  TALON_ASSIGN_OR_RETURN(layer.q_norm, loader->Vector(layout.q_norm));
  TALON_ASSIGN_OR_RETURN(layer.k_norm, loader->Vector(layout.k_norm));
  TALON_ASSIGN_OR_RETURN(layer.output, loader->Matrix(layout.output));
  TALON_ASSIGN_OR_RETURN(layer.output_bias, loader->Vector(layout.output_bias));
  TALON_ASSIGN_OR_RETURN(layer.post_norm, loader->Vector(layout.post_norm));
  TALON_ASSIGN_OR_RETURN(layer.gate_up, loader->Matrix(layout.gate_up));
  TALON_ASSIGN_OR_RETURN(layer.gate_up_bias, loader->Vector(layout.gate_up_bias));
  TALON_ASSIGN_OR_RETURN(layer.down, loader->Matrix(layout.down));
  TALON_ASSIGN_OR_RETURN(layer.down_bias, loader->Vector(layout.down_bias));
  return layer;
}

Result<DecoderWeights> LoadDecoderWeights(const ModelConfig& config, WeightSource* source,
                                          Backend* backend, WeightFormat format,
                                          const std::function<void(double)>& progress) {
  const TensorLayout layout = LayoutOf(config);
  const double steps = config.num_layers + 2.0;
  double done = 0;
  const auto advance = [&] {
    if (progress) progress(++done / steps);
  };
  WeightLoader loader(source, backend, format);
  DecoderWeights weights;
  TALON_ASSIGN_OR_RETURN(
      weights.embedding,
      loader.Table(layout.embedding, config.tie_word_embeddings ? &weights.head : nullptr));
  advance();
  for (const LayerLayout& layer_layout : layout.layers) {
    TALON_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayerWeights(layer_layout, &loader));
    weights.layers.push_back(std::move(layer));
    advance();
  }
  TALON_ASSIGN_OR_RETURN(weights.final_norm, loader.Vector(layout.final_norm));
  if (!config.tie_word_embeddings) {
    TALON_ASSIGN_OR_RETURN(weights.head, loader.Matrix(layout.head));
  }
  advance();
  weights.matrix_bytes = loader.matrix_bytes();
  weights.bytes = loader.matrix_bytes() + loader.other_bytes();
  return weights;
}

}  // namespace talon
