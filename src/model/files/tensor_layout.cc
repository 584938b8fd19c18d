#include "model/files/tensor_layout.h"

#include <fmt/core.h>

#include <numeric>

#include "compute/int4.h"

namespace talon {
namespace {

MlpLayout DenseMlp(const ModelConfig& config, const std::string& mlp) {
  const int64_t hidden = config.hidden_size;
  const int64_t ffn = config.intermediate_size;
  MlpLayout layout;
  layout.gate_up = {{mlp + "gate_proj.weight", {ffn, hidden}},
                    {mlp + "up_proj.weight", {ffn, hidden}}};
  layout.down = {{mlp + "down_proj.weight", {hidden, ffn}}};
  layout.down_bounds = MlpBounds(config);
  if (config.mlp_bias) {
    layout.gate_up_bias = {{mlp + "gate_proj.bias", {ffn}}, {mlp + "up_proj.bias", {ffn}}};
    layout.down_bias = {{mlp + "down_proj.bias", {hidden}}};
  }
  return layout;
}

MlpLayout ExpertMlp(const ModelConfig& config, const std::string& experts, ExpertTensors form,
                    int expert) {
  const int64_t count = config.experts.count;
  const int64_t hidden = config.hidden_size;
  const int64_t ffn = config.experts.intermediate_size;
  MlpLayout layout;
  if (form == ExpertTensors::kSeparate) {
    const std::string mlp = fmt::format("{}{}.", experts, expert);
    layout.gate_up = {{mlp + "gate_proj.weight", {ffn, hidden}},
                      {mlp + "up_proj.weight", {ffn, hidden}}};
    layout.down = {{mlp + "down_proj.weight", {hidden, ffn}}};
    return layout;
  }
  const auto matrix = [&](const char* name, int64_t outputs, int64_t inputs) -> TensorParts {
    std::vector<int64_t> shape = {count, outputs, inputs};
    if (form == ExpertTensors::kInputFirst) std::swap(shape[1], shape[2]);
    return {{experts + name, shape, expert, form}};
  };
  layout.gate_up = matrix("gate_up_proj", 2 * ffn, hidden);
  layout.down = matrix("down_proj", hidden, ffn);
  if (config.experts.biases) {
    layout.gate_up_bias = {{experts + "gate_up_proj_bias", {count, 2 * ffn}, expert}};
    layout.down_bias = {{experts + "down_proj_bias", {count, hidden}, expert}};
  }
  return layout;
}

void AddExperts(const ModelConfig& config, const std::string& mlp, ExpertTensors form,
                LayerLayout* layer) {
  const std::string router = mlp + (config.family == ModelFamily::kGptOss ? "router." : "gate.");
  layer->router = {{router + "weight", {config.experts.count, config.hidden_size}}};
  if (config.experts.biases) layer->router_bias = {{router + "bias", {config.experts.count}}};
  for (int e = 0; e < config.experts.count; ++e) {
    layer->experts.push_back(ExpertMlp(config, mlp + "experts.", form, e));
  }
}

LayerLayout LayerOf(const ModelConfig& config, int index, ExpertTensors experts) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  LayerLayout layer;
  layer.input_norm = {{prefix + "input_layernorm.weight", {hidden}}};
  layer.post_norm = {{prefix + "post_attention_layernorm.weight", {hidden}}};
  layer.qkv = {{attention + "q_proj.weight", {q, hidden}},
               {attention + "k_proj.weight", {kv, hidden}},
               {attention + "v_proj.weight", {kv, hidden}}};
  layer.output = {{attention + "o_proj.weight", {hidden, q}}};
  layer.output_bounds = SegmentBounds(config.q_size(), config.q_size() / config.num_kv_heads);
  if (config.qkv_bias) {
    layer.qkv_bias = {{attention + "q_proj.bias", {q}},
                      {attention + "k_proj.bias", {kv}},
                      {attention + "v_proj.bias", {kv}}};
  }
  if (config.output_bias) layer.output_bias = {{attention + "o_proj.bias", {hidden}}};
  if (config.sinks) layer.sinks = {{attention + "sinks", {config.num_heads}}};
  if (config.IsSparse(index)) {
    AddExperts(config, mlp, experts, &layer);
  } else {
    layer.mlp = DenseMlp(config, mlp);
  }
  if (config.qk_norm) {
    layer.q_norm = {{attention + "q_norm.weight", {config.head_dim}}};
    layer.k_norm = {{attention + "k_norm.weight", {config.head_dim}}};
  }
  return layer;
}

}  // namespace

std::vector<int> MlpBounds(const ModelConfig& config) {
  return SegmentBounds(config.intermediate_size, kInt4Group,
                       std::gcd(config.num_kv_heads, kSegments));
}

TensorLayout LayoutOf(const ModelConfig& config, ExpertTensors experts) {
  TensorLayout layout;
  layout.embedding = {{"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}};
  for (int i = 0; i < config.num_layers; ++i) {
    layout.layers.push_back(LayerOf(config, i, experts));
  }
  layout.final_norm = {{"model.norm.weight", {config.hidden_size}}};
  layout.head = layout.embedding;
  if (!config.tie_word_embeddings) layout.head[0].name = "lm_head.weight";
  return layout;
}

std::vector<TensorSpec> TensorLayout::All() const {
  std::vector<TensorSpec> all;
  const auto add = [&](const TensorParts& parts) {
    for (const TensorSpec& spec : parts) {
      if (spec.expert <= 0) all.push_back(spec);
    }
  };
  const auto add_mlp = [&](const MlpLayout& mlp) {
    for (const TensorParts* parts : {&mlp.gate_up, &mlp.gate_up_bias, &mlp.down, &mlp.down_bias}) {
      add(*parts);
    }
  };
  add(embedding);
  for (const LayerLayout& layer : layers) {
    for (const TensorParts* parts :
         {&layer.input_norm, &layer.post_norm, &layer.qkv, &layer.qkv_bias, &layer.q_norm,
          &layer.k_norm, &layer.output, &layer.output_bias, &layer.sinks, &layer.router,
          &layer.router_bias}) {
      add(*parts);
    }
    add_mlp(layer.mlp);
    for (const MlpLayout& expert : layer.experts) add_mlp(expert);
  }
  add(final_norm);
  if (head[0].name != embedding[0].name) add(head);
  return all;
}

}  // namespace talon
