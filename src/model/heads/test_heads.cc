#include "model/heads/test_heads.h"

#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "model/test_model.h"

namespace talon {
namespace {

constexpr int kMarkovRank = 8;

OwnedTensor RandomTensor(const std::string& name, std::vector<int64_t> shape, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const float base = name.ends_with("norm.weight") ? 1.0f : 0.0f;
  OwnedTensor tensor{.name = name, .dtype = DType::kF32, .shape = std::move(shape), .bytes = {}};
  tensor.bytes.resize(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const double draw = UniformDraw({.seed = seed, .position = static_cast<uint64_t>(i)});
    StoreElement(tensor.bytes.data(), DType::kF32, i, base + static_cast<float>(draw - 0.5) / 2);
  }
  return tensor;
}

}  // namespace

Json TestHeadConfig(DraftKind kind, const ModelConfig& target) {
  const bool eagle = kind == DraftKind::kEagle;
  Json config = {{"vocab_size", target.vocab_size},
                 {"hidden_size", target.hidden_size},
                 {"num_hidden_layers", eagle ? 1 : 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"intermediate_size", 48},
                 {"max_position_embeddings", 4096},
                 {"rope_theta", 10000.0}};
  if (eagle) {
    config["architectures"] = {"LlamaForCausalLMEagle"};
    return config;
  }
  const bool markov = kind == DraftKind::kDspark;
  config["architectures"] = {markov ? "Qwen3DSparkModel" : "DFlashDraftModel"};
  config["model_type"] = "qwen3";
  config["num_target_layers"] = target.num_layers;
  config["block_size"] = markov ? 6 : 7;
  config["dflash_config"] = {{"mask_token_id", target.vocab_size - 1},
                             {"target_layer_ids", {1, target.num_layers - 2}},
                             {"causal_head", kind == DraftKind::kJetspec}};
  if (markov) config["markov_rank"] = kMarkovRank;
  return config;
}

void WriteTestHead(const std::string& dir, DraftKind kind, const Json& config,
                   const ModelConfig& target, uint64_t seed) {
  const bool eagle = kind == DraftKind::kEagle;
  Json layers = config;
  layers["architectures"] = {eagle ? "LlamaForCausalLM" : "Qwen3ForCausalLM"};
  auto parsed = ParseModelConfig(layers, "test head");
  TALON_CHECK(parsed.ok(), "{}", parsed.status().message());
  const int64_t hidden = target.hidden_size;
  const int64_t vocab = target.vocab_size;
  std::vector<OwnedTensor> tensors;
  for (OwnedTensor& tensor : RandomTensors(*parsed, DType::kF32, seed)) {
    constexpr std::string_view kPrefix = "model.";
    if (tensor.name.starts_with(kPrefix)) tensor.name.erase(0, kPrefix.size());
    const bool shared = tensor.name == "embed_tokens.weight" || tensor.name == "lm_head.weight";
    const bool norm =
        tensor.name == "norm.weight" || tensor.name.ends_with("input_layernorm.weight");
    if (!shared && !(eagle && norm)) tensors.push_back(std::move(tensor));
  }
  tensors.push_back(RandomTensor("fc.weight", {hidden, 2 * hidden}, seed + 1));
  if (eagle) {
    tensors.push_back(RandomTensor("fc.bias", {hidden}, seed + 2));
  } else {
    tensors.push_back(RandomTensor("hidden_norm.weight", {hidden}, seed + 2));
  }
  if (kind == DraftKind::kDspark) {
    const std::string markov = "markov_head.markov_";
    tensors.push_back(RandomTensor(markov + "w1.weight", {vocab, kMarkovRank}, seed + 3));
    tensors.push_back(RandomTensor(markov + "w2.weight", {vocab, kMarkovRank}, seed + 4));
  }
  TALON_CHECK(WriteFile(dir + "/config.json", config.dump()).ok());
  TALON_CHECK(WriteTensors(dir + "/model.safetensors", tensors).ok());
}

void WriteTestHead(const std::string& dir, DraftKind kind, const ModelConfig& target,
                   uint64_t seed) {
  WriteTestHead(dir, kind, TestHeadConfig(kind, target), target, seed);
}

}  // namespace talon
