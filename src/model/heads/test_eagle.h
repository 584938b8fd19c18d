// Small EAGLE-3 heads on disk for tests, and a slow reference of their forward pass.
#ifndef TALON_MODEL_HEADS_TEST_EAGLE_H_
#define TALON_MODEL_HEADS_TEST_EAGLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "compute/backend.h"
#include "model/decoder.h"
#include "model/heads/eagle_head.h"
#include "model/test_model.h"

namespace talon {

// A LlamaForCausalLM of 8 layers, hidden size 32, vocabulary 96, 256 positions.
Json EagleTargetConfig();

// A valid head for that target: hidden 32, 4/2 heads of 8, draft vocabulary 40.
struct TestHead {
  Json config;
  std::vector<OwnedTensor> tensors;

  OwnedTensor* Find(const std::string& name);  // null if missing
  void Add(const std::string& name, std::vector<int64_t> shape);
  void Remove(const std::string& name);
  void Rename(const std::string& from, const std::string& to);
  // Every name that starts with `from`.
  void RenamePrefix(const std::string& from, const std::string& to);
  void Write(const std::string& dir) const;
};
TestHead MakeTestHead();
// The same for another target, with the inputs of layers 1 to 3 and half of its vocabulary.
TestHead MakeTestHead(const ModelConfig& target);
// Tensors of the sizes that `config` states, in the canonical spelling, with what its options need.
TestHead MakeTestHead(const Json& config);

// A target with random weights, and heads for it.
class EagleTestBed {
 public:
  explicit EagleTestBed(std::unique_ptr<Backend> backend);
  Result<std::unique_ptr<EagleHead>> Load(const TestHead& head,
                                          const EagleHead::Options& options = {});
  Backend* backend() { return backend_.get(); }
  Decoder* target() { return target_.get(); }

 private:
  TempDirectory dir_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> target_;
};

// `count` values in [-1, 1).
std::vector<float> RandomFloats(size_t count, uint64_t seed);

// The head in double precision, one row at a time, straight from its tensors.
class EagleReference {
 public:
  // Embeddings and lm_head of the target where the head has none.
  EagleReference(const TestHead& head, const EagleConfig& config, const ModelConfig& target);

  struct Row {
    std::vector<double> k, v;
    std::vector<double> logits, hidden, next;
  };
  std::vector<double> Fuse(std::span<const float> features) const;
  // `keys` are the rows that this one sees, without itself.
  Row Run(const std::vector<double>& input, int32_t token, int position,
          const std::vector<const Row*>& keys) const;

 private:
  std::vector<double> Tensor(const std::string& name) const;
  std::vector<double> Linear(const std::string& name, const std::vector<double>& x) const;
  std::vector<double> Norm(const std::string& name, const std::vector<double>& x) const;
  void Rope(int position, std::vector<double>* heads) const;
  std::vector<double> Attend(const std::vector<double>& q,
                             const std::vector<const Row*>& keys) const;
  std::vector<double> Mlp(const std::vector<double>& x) const;

  std::vector<OwnedTensor> tensors_;
  EagleConfig config_;
};

}  // namespace talon

#endif  // TALON_MODEL_HEADS_TEST_EAGLE_H_
