// Shapes of public models, for speed measurements with random weights.
#include <array>
#include <string>

#include "model/config.h"

namespace talon {
namespace {

struct Shape {
  const char* name;
  ModelConfig (*config)();
};

ModelConfig Dense(int hidden, int heads, int kv_heads, int head_dim, int ffn) {
  ModelConfig config;
  config.hidden_size = hidden;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.intermediate_size = ffn;
  config.rms_norm_eps = 1e-5f;
  config.rope.theta = 500000;
  config.dtype = DType::kBF16;
  config.num_layers = 16;
  config.max_position_embeddings = config.max_context = 32768;
  return config;
}

ModelConfig Tiny() {
  ModelConfig config = Dense(256, 4, 2, 64, 704);
  config.tie_word_embeddings = true;
  config.vocab_size = 8192;
  return config;
}

// For long contexts: few layers, so that caches are small.
ModelConfig TinyLong() {
  ModelConfig config = Tiny();
  config.num_layers = 4;
  config.max_position_embeddings = config.max_context = 262144;
  return config;
}

ModelConfig Llama1B() {
  ModelConfig config = Dense(2048, 32, 8, 64, 8192);
  config.tie_word_embeddings = true;
  config.vocab_size = 32000;
  return config;
}

ModelConfig Llama8B() {
  ModelConfig config = Dense(4096, 32, 8, 128, 14336);
  config.vocab_size = 128256;
  config.num_layers = 32;
  config.max_position_embeddings = config.max_context = 262144;
  return config;
}

ModelConfig Llama70B() {
  ModelConfig config = Dense(8192, 64, 8, 128, 28672);
  config.vocab_size = 128256;
  config.num_layers = 80;
  config.max_position_embeddings = config.max_context = 131072;
  return config;
}

// 1/512 of the weights, cut like those of the whole: widths and layers by 8, the vocabulary by 64.
ModelConfig Llama70BSmall() {
  ModelConfig config = Dense(1024, 64, 8, 16, 3584);
  config.vocab_size = 2004;
  config.num_layers = 10;
  return config;
}

ModelConfig GptOss(int layers, int experts) {
  ModelConfig config = Dense(2880, 64, 8, 64, 2880);
  config.family = ModelFamily::kGptOss;
  config.vocab_size = 201088;
  config.num_layers = layers;
  config.max_position_embeddings = config.max_context = 131072;
  config.rope = {.kind = RopeKind::kYarn,
                 .theta = 150000,
                 .factor = 32,
                 .trained_positions = 4096,
                 .truncate = false};
  config.qkv_bias = config.output_bias = config.sinks = true;
  config.experts = {.count = experts,
                    .intermediate_size = 2880,
                    .biases = true,
                    .mxfp4 = true,
                    .rule = {.per_row = 4, .gate_limit = 7}};
  for (int i = 0; i < layers; ++i) config.windows.push_back(i % 2 == 0 ? 128 : 0);
  return config;
}

ModelConfig GptOss20B() { return GptOss(24, 32); }
ModelConfig GptOss120B() { return GptOss(36, 128); }
// Four layers of GptOss20B and a smaller vocabulary: the same ratio of experts to the rest.
ModelConfig GptOss3B() {
  ModelConfig config = GptOss(4, 32);
  config.vocab_size = 32768;
  return config;
}
// The same architecture in a size that any machine holds.
ModelConfig GptOssTiny() {
  ModelConfig config = GptOss(8, 8);
  config.hidden_size = config.intermediate_size = config.experts.intermediate_size = 256;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.vocab_size = 8192;
  return config;
}

ModelConfig Qwen30B() {
  ModelConfig config = Dense(2048, 32, 4, 128, 6144);
  config.family = ModelFamily::kQwen3Moe;
  config.vocab_size = 151936;
  config.num_layers = 48;
  config.max_position_embeddings = config.max_context = 40960;
  config.rope.theta = 1e6;
  config.rms_norm_eps = 1e-6f;
  config.qk_norm = true;
  config.experts = {.count = 128, .intermediate_size = 768, .rule = {.per_row = 8}};
  return config;
}

constexpr std::array<Shape, 11> kShapes = {{{"llama-1b", Llama1B},
                                            {"llama-8b", Llama8B},
                                            {"llama-70b", Llama70B},
                                            {"llama-70b-small", Llama70BSmall},
                                            {"tiny", Tiny},
                                            {"tiny-long", TinyLong},
                                            {"gpt-oss-tiny", GptOssTiny},
                                            {"gpt-oss-3b", GptOss3B},
                                            {"gpt-oss-20b", GptOss20B},
                                            {"gpt-oss-120b", GptOss120B},
                                            {"qwen3-30b-a3b", Qwen30B}}};

}  // namespace

std::string ShapeNames() {
  std::string names;
  for (const Shape& shape : kShapes) {
    names += names.empty() ? "" : ", ";
    names += shape.name;
  }
  return names;
}

Result<ModelConfig> ShapeByName(std::string_view name) {
  for (const Shape& shape : kShapes) {
    if (name == shape.name) return shape.config();
  }
  return InvalidArgument("shape \"{}\" is unknown (known: {})", name, ShapeNames());
}

}  // namespace talon
