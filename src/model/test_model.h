// Small models on disk for tests: a temporary directory with config.json and random weights.
#ifndef TALON_MODEL_TEST_MODEL_H_
#define TALON_MODEL_TEST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "compute/dtype.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/files/safetensors.h"

namespace talon {

// Threads of the CPU backend that the tests compare with the reference.
inline constexpr int kCpuThreads = 2;

// Passes as small as most tests need.
inline const LoadOptions kFewRows = {.max_rows = 64, .max_output_rows = 64};

// A directory that exists as long as this object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A tensor with its bytes.
struct OwnedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  TensorView view() const { return {name, dtype, shape, bytes}; }
};

// A valid LlamaForCausalLM config: 2 layers, 4/2 heads of 8, hidden 32, ffn 48, vocabulary 96.
Json SmallConfig();

// The same with experts: 4 layers, 8 experts of 64, 3 for each token, vocabulary 512. "gpt_oss" has
// windows of 12 tokens and sinks, "gpt_oss_mxfp4" is packed, "qwen3_moe" has a dense layer between.
Json ExpertsConfig(const std::string& kind);

// Values big enough that every projection, bias and norm changes the logits.
std::vector<OwnedTensor> RandomTensors(const ModelConfig& config, DType dtype, uint64_t seed);

Status WriteTensors(const std::string& path, const std::vector<OwnedTensor>& tensors);

// config.json and model.safetensors. `config` must be valid.
void WriteModel(const std::string& dir, const Json& config, DType dtype, uint64_t seed);

}  // namespace talon

#endif  // TALON_MODEL_TEST_MODEL_H_
