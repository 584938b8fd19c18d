#include "model/test_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
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

std::vector<OwnedTensor> RandomTensors(const ModelConfig& config, DType dtype, uint64_t seed) {
  std::vector<OwnedTensor> tensors;
  uint64_t position = 0;
  for (const TensorSpec& spec : LayoutOf(config).All()) {
    OwnedTensor tensor{.name = spec.name, .dtype = dtype, .shape = spec.shape, .bytes = {}};
    const int64_t count = spec.rows() * spec.cols();
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
