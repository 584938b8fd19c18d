#include "model/test_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "compute/mxfp4.h"
#include "model/files/tensor_layout.h"

namespace talon {

TempDirectory::TempDirectory() : path_(testing::TempDir() + "/talon_model_XXXXXX") {
  TALON_CHECK(mkdtemp(path_.data()) != nullptr, "cannot make {}", path_);
}

TempDirectory::~TempDirectory() { std::filesystem::remove_all(path_); }

Json SmallConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 48},
          {"max_position_embeddings", 256},
          {"rope_theta", 10000.0}};
}

Json ExpertsConfig(const std::string& kind) {
  Json config = SmallConfig();
  config.update({{"vocab_size", 512},
                 {"num_hidden_layers", 4},
                 {"head_dim", 16},
                 {"hidden_size", 64},
                 {"intermediate_size", 64},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 3}});
  if (kind == "qwen3_moe") {
    config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                   {"moe_intermediate_size", 64},
                   {"norm_topk_prob", true},
                   {"mlp_only_layers", {1}}});
    return config;
  }
  config.update({{"architectures", {"GptOssForCausalLM"}}, {"sliding_window", 12}});
  if (kind == "gpt_oss_mxfp4") config["quantization_config"] = {{"quant_method", "mxfp4"}};
  return config;
}

namespace {

int64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Any bytes are codes; exponents make values of about the others' size.
void AddMxfp4(const TensorSpec& spec, uint64_t seed, std::vector<OwnedTensor>* tensors) {
  const std::vector<int64_t> scales = {spec.shape[0], spec.rows(), spec.cols() / kMxfp4Group};
  std::vector<int64_t> blocks = scales;
  blocks.push_back(kMxfp4GroupBytes);
  for (const bool codes : {true, false}) {
    OwnedTensor tensor{.name = spec.name + (codes ? "_blocks" : "_scales"),
                       .dtype = DType::kU8,
                       .shape = codes ? blocks : scales,
                       .bytes = {}};
    const int64_t count = Elements(tensor.shape);
    for (int64_t i = 0; i < count; ++i) {
      const double u = UniformDraw(
          {.seed = seed, .position = tensors->size(), .draw = static_cast<uint32_t>(i)});
      tensor.bytes.push_back(static_cast<uint8_t>(codes ? 256 * u : 121 + 2 * u));
    }
    tensors->push_back(std::move(tensor));
  }
}

ExpertTensors FormOf(const ModelConfig& config) {
  if (config.experts.mxfp4) return ExpertTensors::kMxfp4;
  return config.family == ModelFamily::kGptOss ? ExpertTensors::kInputFirst
                                               : ExpertTensors::kSeparate;
}

}  // namespace

std::vector<OwnedTensor> RandomTensors(const ModelConfig& config, DType dtype, uint64_t seed) {
  std::vector<OwnedTensor> tensors;
  uint64_t position = 0;
  for (const TensorSpec& spec : LayoutOf(config, FormOf(config)).All()) {
    if (spec.expert >= 0 && spec.is_matrix() && config.experts.mxfp4) {
      AddMxfp4(spec, seed, &tensors);
      continue;
    }
    OwnedTensor tensor{.name = spec.name, .dtype = dtype, .shape = spec.shape, .bytes = {}};
    const int64_t count = Elements(tensor.shape);
    tensor.bytes.resize(static_cast<size_t>(count) * DTypeSize(dtype));
    const float offset = spec.name.ends_with("norm.weight") ? 1.0f : 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      const double u = UniformDraw({.seed = seed, .position = position++});
      StoreElement(tensor.bytes.data(), dtype, i, offset + static_cast<float>(0.4 * u - 0.2));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Status WriteTensors(const std::string& path, const std::vector<OwnedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
  return WriteSafetensors(path, views);
}

void WriteModel(const std::string& dir, const Json& config, DType dtype, uint64_t seed) {
  const auto parsed = ParseModelConfig(config, "test");
  TALON_CHECK(parsed.ok(), "{}", parsed.status().message());
  TALON_CHECK(WriteFile(dir + "/config.json", config.dump()).ok());
  TALON_CHECK(WriteTensors(dir + "/model.safetensors", RandomTensors(*parsed, dtype, seed)).ok());
}

}  // namespace talon
