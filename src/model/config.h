// What a model is: the sizes and options of a Hugging Face config.json, checked.
//
// Every value is validated here, against fixed limits and against the others, so the code that
// loads and runs a model works with sizes whose products fit an int.
#ifndef TALON_MODEL_CONFIG_H_
#define TALON_MODEL_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "compute/backend.h"
#include "compute/dtype.h"
#include "model/files/quant_config.h"
#include "model/rope.h"

namespace talon {

enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3, kQwen3Moe, kGptOss };
const char* ModelFamilyName(ModelFamily family);  // "llama", ...

// The experts of sparse layers.
struct ExpertConfig {
  int count = 0;  // 0: every layer is dense
  int intermediate_size = 0;
  bool biases = false;  // biases of the router and of both products
  // Kept as MXFP4 in the file. Else files say by their tensors how experts are stored.
  bool mxfp4 = false;
  ExpertRule rule;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;
  int intermediate_size = 0;
  int max_position_embeddings = 0;
  int max_context = 0;  // longest sequence: the positions, with what YaRN extends them to
  // [layers] keys that a row of the layer sees, 0: all. Empty: all layers see all.
  std::vector<int> windows;
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // bias of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each query and key head
  bool sinks = false;    // a logit for each head in the softmax's denominator
  ExpertConfig experts;
  QuantConfig quantised;           // how the file keeps matrices, where not as floats
  std::vector<bool> dense_layers;  // [layers] those without experts; empty: none of them
  int bos_token_id = -1;           // -1: none
  std::vector<int> eos_token_ids;
  DType dtype = DType::kF32;  // the file's declared type; the tensors say what they are

  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  int WindowOf(int layer) const { return windows.empty() ? 0 : windows[layer]; }
  bool IsSparse(int layer) const {
    return experts.count > 0 && (dense_layers.empty() || !dense_layers[layer]);
  }
  // `total` of all sparse layers, by layer; 0 without any.
  double PerSparseLayer(double total) const;
  // Width of the layer's MLP as one row sees it: of all the experts that it goes through.
  int ActiveMlpSize(int layer) const {
    return IsSparse(layer) ? experts.rule.per_row * experts.intermediate_size : intermediate_size;
  }
};

// `what` names the source in messages, usually the file's path.
Result<ModelConfig> ParseModelConfig(const Json& json, const std::string& what);

// generation_config.json: its bos and eos ids replace those of config.json.
Status ApplyGenerationConfig(const Json& json, const std::string& what, ModelConfig* config);

// config.json and, where present, generation_config.json of a model directory.
Result<ModelConfig> LoadModelConfig(const std::string& dir);

// Shapes with no files, for speed measurements with random weights: "llama-1b", "gpt-oss-20b", ...
Result<ModelConfig> ShapeByName(std::string_view name);
std::string ShapeNames();  // "llama-1b, llama-8b, ..."

}  // namespace talon

#endif  // TALON_MODEL_CONFIG_H_
