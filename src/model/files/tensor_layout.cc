#include "model/files/tensor_layout.h"

#include <fmt/core.h>

namespace talon {
namespace {

LayerLayout LayerOf(const ModelConfig& config, int index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.q_size();
  const int64_t kv = config.kv_size();
  const int64_t ffn = config.intermediate_size;
  LayerLayout layer;
  layer.input_norm = {{prefix + "input_layernorm.weight", {hidden}}};
  layer.post_norm = {{prefix + "post_attention_layernorm.weight", {hidden}}};
  layer.qkv = {{attention + "q_proj.weight", {q, hidden}},
               {attention + "k_proj.weight", {kv, hidden}},
               {attention + "v_proj.weight", {kv, hidden}}};
  layer.output = {{attention + "o_proj.weight", {hidden, q}}};
  layer.gate_up = {{mlp + "gate_proj.weight", {ffn, hidden}},
                   {mlp + "up_proj.weight", {ffn, hidden}}};
  layer.down = {{mlp + "down_proj.weight", {hidden, ffn}}};
  if (config.qkv_bias) {
    layer.qkv_bias = {{attention + "q_proj.bias", {q}},
                      {attention + "k_proj.bias", {kv}},
                      {attention + "v_proj.bias", {kv}}};
  }
  if (config.output_bias) layer.output_bias = {{attention + "o_proj.bias", {hidden}}};
  if (config.mlp_bias) {
    layer.gate_up_bias = {{mlp + "gate_proj.bias", {ffn}}, {mlp + "up_proj.bias", {ffn}}};
    layer.down_bias = {{mlp + "down_proj.bias", {hidden}}};
  }
  if (config.qk_norm) {
    layer.q_norm = {{attention + "q_norm.weight", {config.head_dim}}};
    layer.k_norm = {{attention + "k_norm.weight", {config.head_dim}}};
  }
  return layer;
}

}  // namespace

TensorLayout LayoutOf(const ModelConfig& config) {
  TensorLayout layout;
  layout.embedding = {{"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}};
  for (int i = 0; i < config.num_layers; ++i) layout.layers.push_back(LayerOf(config, i));
  layout.final_norm = {{"model.norm.weight", {config.hidden_size}}};
  layout.head = layout.embedding;
  if (!config.tie_word_embeddings) layout.head[0].name = "lm_head.weight";
  return layout;
}

std::vector<TensorSpec> TensorLayout::All() const {
  std::vector<TensorSpec> all;
  const auto add = [&](const TensorParts& parts) {
    all.insert(all.end(), parts.begin(), parts.end());
  };
  add(embedding);
  for (const LayerLayout& layer : layers) {
    for (const TensorParts* parts :
         {&layer.input_norm, &layer.post_norm, &layer.qkv, &layer.qkv_bias, &layer.q_norm,
          &layer.k_norm, &layer.output, &layer.output_bias, &layer.gate_up, &layer.gate_up_bias,
          &layer.down, &layer.down_bias}) {
      add(*parts);
    }
  }
  add(final_norm);
  if (head[0].name != embedding[0].name) add(head);
  return all;
}

}  // namespace talon
