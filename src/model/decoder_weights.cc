#include "model/decoder_weights.h"

#include <utility>

#include "model/files/tensor_layout.h"
#include "model/files/weight_loader.h"

namespace talon {
namespace {

Result<MlpWeights> LoadMlp(const MlpLayout& layout, bool expert, WeightLoader* loader) {
  MlpWeights mlp;
  const auto load = [&](const TensorParts& parts, std::span<const int> bounds) {
    return expert ? loader->Matrix(parts, {.bounds = bounds, .expert = true})
                  : loader->LayerMatrix(parts, {.bounds = bounds});
  };
  TALON_ASSIGN_OR_RETURN(mlp.gate_up, load(layout.gate_up, {}));
  TALON_ASSIGN_OR_RETURN(mlp.gate_up_bias, loader->Vector(layout.gate_up_bias));
  TALON_ASSIGN_OR_RETURN(mlp.down, load(layout.down, layout.down_bounds));
  TALON_ASSIGN_OR_RETURN(mlp.down_bias, loader->Vector(layout.down_bias));
  return mlp;
}

// The router decides by small differences, so it is kept exactly.
Status LoadExperts(const LayerLayout& layout, WeightLoader* loader, LayerWeights* layer) {
  TALON_ASSIGN_OR_RETURN(layer->router, loader->ExactMatrix(layout.router));
  TALON_ASSIGN_OR_RETURN(layer->router_bias, loader->Vector(layout.router_bias));
  for (const MlpLayout& expert : layout.experts) {
    TALON_ASSIGN_OR_RETURN(MlpWeights mlp, LoadMlp(expert, /*expert=*/true, loader));
    layer->experts.push_back(std::move(mlp));
    layer->expert_views.push_back(layer->experts.back().view());
  }
  TALON_ASSIGN_OR_RETURN(layer->expert_table,
                         loader->backend()->expert_ops()->Prepare(layer->expert_views));
  return OkStatus();
}

}  // namespace

FeedForwardWeights MlpWeights::view() const {
  return {gate_up.get(), Floats(gate_up_bias), down.get(), Floats(down_bias)};
}

Result<LayerWeights> LoadLayerWeights(const LayerLayout& layout, WeightLoader* loader) {
  LayerWeights layer;
  TALON_ASSIGN_OR_RETURN(layer.input_norm, loader->Vector(layout.input_norm));
  TALON_ASSIGN_OR_RETURN(layer.qkv, loader->LayerMatrix(layout.qkv));
  TALON_ASSIGN_OR_RETURN(layer.qkv_bias, loader->Vector(layout.qkv_bias));
  TALON_ASSIGN_OR_RETURN(layer.q_norm, loader->Vector(layout.q_norm));
  TALON_ASSIGN_OR_RETURN(layer.k_norm, loader->Vector(layout.k_norm));
  TALON_ASSIGN_OR_RETURN(layer.output,
                         loader->LayerMatrix(layout.output, {.bounds = layout.output_bounds}));
  TALON_ASSIGN_OR_RETURN(layer.output_bias, loader->Vector(layout.output_bias));
  TALON_ASSIGN_OR_RETURN(layer.post_norm, loader->Vector(layout.post_norm));
  TALON_ASSIGN_OR_RETURN(layer.sinks, loader->Vector(layout.sinks));
  if (!layout.experts.empty()) {
    TALON_RETURN_IF_ERROR(LoadExperts(layout, loader, &layer));
  } else {
    TALON_ASSIGN_OR_RETURN(layer.mlp, LoadMlp(layout.mlp, /*expert=*/false, loader));
  }
  return layer;
}

Result<DecoderWeights> LoadDecoderWeights(const ModelConfig& config, const ModelShard& shard,
                                          WeightSource* source, Backend* backend,
                                          const DecoderWeightOptions& options) {
  TensorLayout layout = LayoutOf(config, source->expert_tensors());
  TakeShard(config, shard, &layout);
  const double steps = config.num_layers + 2.0;
  double done = 0;
  const auto advance = [&] {
    if (options.progress) options.progress(++done / steps);
  };
  WeightLoader loader(source, backend, options.format, options.activations);
  DecoderWeights weights;
  TALON_ASSIGN_OR_RETURN(weights.embedding,
                         loader.TiedTable(layout.embedding, layout.head[0],
                                          config.tie_word_embeddings ? &weights.head : nullptr));
  advance();
  for (const LayerLayout& layer_layout : layout.layers) {
    TALON_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayerWeights(layer_layout, &loader));
    for (const MlpWeights& expert : layer.experts) {
      weights.expert_bytes += expert.gate_up->bytes() + expert.down->bytes();
    }
    weights.layers.push_back(std::move(layer));
    advance();
  }
  if (options.activations == ActivationFormat::kFp8 && loader.fp8_products() == 0) {
    return InvalidArgument("activations: fp8, but no dense layer of the model has fp8 weights");
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
