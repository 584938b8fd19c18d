#include "model/heads/test_eagle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "model/rope.h"

namespace talon {
namespace {

constexpr uint64_t kTargetSeed = 11;

bool Flag(const Json& config, const char* key) { return config.value(key, false); }

OwnedTensor OffsetsTensor(int64_t draft_vocab, int64_t step) {
  OwnedTensor tensor{.name = "d2t", .dtype = DType::kI64, .shape = {draft_vocab}, .bytes = {}};
  for (int64_t i = 0; i < draft_vocab; ++i) {
    const int64_t offset = i * (step - 1);  // draft id i is target id i * step
    const auto* bytes = reinterpret_cast<const uint8_t*>(&offset);
    tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + sizeof(offset));
  }
  return tensor;
}

struct Sizes {
  explicit Sizes(const Json& config)
      : hidden(config.at("hidden_size")),
        target(config.value("target_hidden_size", hidden)),
        features(config.value("num_aux_hidden_states", 3) * target),
        head_dim(config.value("head_dim", hidden / config.at("num_attention_heads").get<int>())),
        q(config.at("num_attention_heads").get<int64_t>() * head_dim),
        kv(config.at("num_key_value_heads").get<int64_t>() * head_dim),
        ffn(config.at("intermediate_size")),
        vocab(config.at("vocab_size")),
        draft_vocab(config.value("draft_vocab_size", vocab)) {}
  int64_t hidden, target, features, head_dim, q, kv, ffn, vocab, draft_vocab;
};

void AddLayer(const Sizes& sizes, TestHead* head) {
  const int64_t hidden = sizes.hidden;
  const std::string attention = "midlayer.self_attn.";
  head->Add("midlayer.input_layernorm.weight", {hidden});
  head->Add("midlayer.hidden_norm.weight", {hidden});
  head->Add("midlayer.post_attention_layernorm.weight", {hidden});
  head->Add(attention + "q_proj.weight", {sizes.q, 2 * hidden});
  head->Add(attention + "k_proj.weight", {sizes.kv, 2 * hidden});
  head->Add(attention + "v_proj.weight", {sizes.kv, 2 * hidden});
  head->Add(attention + "o_proj.weight", {hidden, sizes.q});
  head->Add("midlayer.mlp.gate_proj.weight", {sizes.ffn, hidden});
  head->Add("midlayer.mlp.up_proj.weight", {sizes.ffn, hidden});
  head->Add("midlayer.mlp.down_proj.weight", {hidden, sizes.ffn});
  if (Flag(head->config, "attention_bias")) {
    head->Add(attention + "q_proj.bias", {sizes.q});
    head->Add(attention + "k_proj.bias", {sizes.kv});
    head->Add(attention + "v_proj.bias", {sizes.kv});
    head->Add(attention + "o_proj.bias", {hidden});
  }
  if (Flag(head->config, "mlp_bias")) {
    head->Add("midlayer.mlp.gate_proj.bias", {sizes.ffn});
    head->Add("midlayer.mlp.up_proj.bias", {sizes.ffn});
    head->Add("midlayer.mlp.down_proj.bias", {hidden});
  }
}

// What comes before and after the layer.
void AddEnds(const Sizes& sizes, TestHead* head) {
  head->Add("fc.weight", {sizes.hidden, sizes.features});
  head->Add("norm.weight", {sizes.hidden});
  head->Add("lm_head.weight", {sizes.draft_vocab, sizes.hidden});
  head->tensors.push_back(OffsetsTensor(sizes.draft_vocab, sizes.vocab / sizes.draft_vocab));
  if (sizes.target != sizes.hidden) head->Add("embed_tokens.weight", {sizes.vocab, sizes.hidden});
  if (Flag(head->config, "bias")) head->Add("fc.bias", {sizes.hidden});
  if (Flag(head->config, "norm_before_fc")) head->Add("input_norm.weight", {sizes.features});
  if (!Flag(head->config, "fc_norm")) return;
  for (int64_t i = 0; i < sizes.features / sizes.target; ++i) {
    head->Add(fmt::format("fc_norm.{}.weight", i), {sizes.target});
  }
}

}  // namespace

Json EagleTargetConfig() {
  Json config = SmallConfig();
  config["num_hidden_layers"] = 8;
  return config;
}

OwnedTensor* TestHead::Find(const std::string& name) {
  const auto it = std::ranges::find(tensors, name, &OwnedTensor::name);
  return it == tensors.end() ? nullptr : &*it;
}

// Values that depend on the name alone, so that options can be compared.
void TestHead::Add(const std::string& name, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  OwnedTensor tensor{.name = name, .dtype = DType::kF32, .shape = std::move(shape), .bytes = {}};
  tensor.bytes.resize(static_cast<size_t>(count) * sizeof(float));
  const float offset = name.ends_with("norm.weight") || name.find("_norm") != std::string::npos;
  const std::vector<float> values =
      RandomFloats(static_cast<size_t>(count), std::hash<std::string>()(name));
  for (int64_t i = 0; i < count; ++i) {
    StoreElement(tensor.bytes.data(), DType::kF32, i,
                 offset + 0.25f * values[static_cast<size_t>(i)]);
  }
  tensors.push_back(std::move(tensor));
}

void TestHead::Remove(const std::string& name) {
  std::erase_if(tensors, [&](const OwnedTensor& tensor) { return tensor.name == name; });
}

void TestHead::Rename(const std::string& from, const std::string& to) { Find(from)->name = to; }

void TestHead::RenamePrefix(const std::string& from, const std::string& to) {
  for (OwnedTensor& tensor : tensors) {
    if (tensor.name.starts_with(from)) tensor.name.replace(0, from.size(), to);
  }
}

void TestHead::Write(const std::string& dir) const {
  TALON_CHECK(WriteFile(dir + "/config.json", config.dump()).ok());
  TALON_CHECK(WriteTensors(dir + "/model.safetensors", tensors).ok());
}

TestHead MakeTestHead() {
  return MakeTestHead(Json{{"architectures", {"LlamaForCausalLMEagle3"}},
                           {"vocab_size", 96},
                           {"draft_vocab_size", 40},
                           {"hidden_size", 32},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"intermediate_size", 48},
                           {"max_position_embeddings", 256},
                           {"rope_theta", 10000.0}});
}

TestHead MakeTestHead(const ModelConfig& target) {
  return MakeTestHead(Json{{"architectures", {"LlamaForCausalLMEagle3"}},
                           {"vocab_size", target.vocab_size},
                           {"draft_vocab_size", target.vocab_size / 2},
                           {"hidden_size", target.hidden_size},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"intermediate_size", 48},
                           {"max_position_embeddings", 256},
                           {"rope_theta", 10000.0},
                           {"eagle_aux_hidden_state_layer_ids", {1, 2, 3}}});
}

TestHead MakeTestHead(const Json& config) {
  TestHead head{.config = config, .tensors = {}};
  const Sizes sizes(config);
  AddEnds(sizes, &head);
  AddLayer(sizes, &head);
  return head;
}

EagleTestBed::EagleTestBed(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
  WriteModel(dir_.path(), EagleTargetConfig(), DType::kF32, kTargetSeed);
  auto target = Decoder::Load(dir_.path(), backend_.get(), {});
  TALON_CHECK(target.ok(), "{}", target.status().message());
  target_ = std::move(*target);
}

Result<std::unique_ptr<EagleHead>> EagleTestBed::Load(const TestHead& head,
                                                      const EagleHead::Options& options) {
  const TempDirectory dir;
  head.Write(dir.path());
  return EagleHead::Load(dir.path(), *target_, backend_.get(), options);
}

std::vector<float> RandomFloats(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(2 * UniformDraw({.seed = seed, .position = i}) - 1);
  }
  return values;
}

EagleReference::EagleReference(const TestHead& head, const EagleConfig& config,
                               const ModelConfig& target)
    : tensors_(head.tensors), config_(config) {
  for (OwnedTensor& tensor : RandomTensors(target, DType::kF32, kTargetSeed)) {
    if (tensor.name == "model.embed_tokens.weight") tensor.name = "embed_tokens.weight";
    const bool own = std::ranges::find(tensors_, tensor.name, &OwnedTensor::name) != tensors_.end();
    const bool shared = tensor.name == "embed_tokens.weight" || tensor.name == "lm_head.weight";
    if (shared && !own) tensors_.push_back(std::move(tensor));
  }
}

std::vector<double> EagleReference::Tensor(const std::string& name) const {
  const auto it = std::ranges::find(tensors_, name, &OwnedTensor::name);
  if (it == tensors_.end()) return {};
  std::vector<double> values(it->bytes.size() / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadElement(it->bytes.data(), DType::kF32, static_cast<int64_t>(i));
  }
  return values;
}

std::vector<double> EagleReference::Linear(const std::string& name,
                                           const std::vector<double>& x) const {
  const std::vector<double> weight = Tensor(name + ".weight");
  std::vector<double> out = Tensor(name + ".bias");
  out.resize(weight.size() / x.size(), 0);
  for (size_t row = 0; row < out.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) out[row] += weight[row * x.size() + i] * x[i];
  }
  return out;
}

std::vector<double> EagleReference::Norm(const std::string& name,
                                         const std::vector<double>& x) const {
  const std::vector<double> weight = Tensor(name + ".weight");
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(x.size()) + double{config_.rms_norm_eps});
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

std::vector<double> EagleReference::Fuse(std::span<const float> features) const {
  std::vector<double> x(features.begin(), features.end());
  if (config_.norm_before_fc) x = Norm("input_norm", x);
  const auto size = static_cast<int64_t>(config_.target_hidden_size);
  for (size_t i = 0; config_.fc_norm && i < config_.capture_layers.size(); ++i) {
    const auto start = x.begin() + static_cast<int64_t>(i) * size;
    const auto part = Norm(fmt::format("fc_norm.{}", i), std::vector<double>(start, start + size));
    std::ranges::copy(part, start);
  }
  return Linear("fc", x);
}

void EagleReference::Rope(int position, std::vector<double>* heads) const {
  const RopeTable table =
      ComputeRope(config_.rope, config_.head_dim, config_.max_position_embeddings, 1 << 20);
  const size_t half = table.inv_freq.size();
  for (size_t head = 0; head < heads->size(); head += static_cast<size_t>(config_.head_dim)) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * table.inv_freq[i];
      double& a = (*heads)[head + i];
      double& b = (*heads)[head + half + i];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  }
}

std::vector<double> EagleReference::Attend(const std::vector<double>& q,
                                           const std::vector<const Row*>& keys) const {
  const auto dim = static_cast<size_t>(config_.head_dim);
  const auto group = static_cast<size_t>(config_.num_heads / config_.num_kv_heads);
  std::vector<double> out(q.size(), 0);
  for (size_t head = 0; head < q.size() / dim; ++head) {
    const size_t kv = head / group * dim;
    std::vector<double> weights;
    double total = 0;
    for (const Row* key : keys) {
      double dot = 0;
      for (size_t i = 0; i < dim; ++i) dot += q[head * dim + i] * key->k[kv + i];
      weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
      total += weights.back();
    }
    for (size_t j = 0; j < keys.size(); ++j) {
      for (size_t i = 0; i < dim; ++i) {
        out[head * dim + i] += weights[j] / total * keys[j]->v[kv + i];
      }
    }
  }
  return out;
}

std::vector<double> EagleReference::Mlp(const std::vector<double>& x) const {
  std::vector<double> gate = Linear("midlayer.mlp.gate_proj", x);
  const std::vector<double> up = Linear("midlayer.mlp.up_proj", x);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  return Linear("midlayer.mlp.down_proj", gate);
}

EagleReference::Row EagleReference::Run(const std::vector<double>& input, int32_t token,
                                        int position, const std::vector<const Row*>& keys) const {
  const auto add = [](const std::vector<double>& more, std::vector<double>* sum) {
    for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += more[i];
  };
  const std::vector<double> table = Tensor("embed_tokens.weight");
  const auto start = table.begin() + int64_t{token} * config_.hidden_size;
  const std::vector<double> feature = Norm("midlayer.hidden_norm", input);
  std::vector<double> pair =
      Norm("midlayer.input_layernorm", std::vector<double>(start, start + config_.hidden_size));
  pair.insert(pair.end(), feature.begin(), feature.end());

  Row row;
  std::vector<double> q = Linear("midlayer.self_attn.q_proj", pair);
  row.k = Linear("midlayer.self_attn.k_proj", pair);
  row.v = Linear("midlayer.self_attn.v_proj", pair);
  Rope(position, &q);
  Rope(position, &row.k);
  std::vector<const Row*> seen = keys;
  seen.push_back(&row);
  row.hidden = config_.norm_before_residual ? feature : input;
  add(Linear("midlayer.self_attn.o_proj", Attend(q, seen)), &row.hidden);
  add(Mlp(Norm("midlayer.post_attention_layernorm", row.hidden)), &row.hidden);
  const std::vector<double> normed = Norm("norm", row.hidden);
  row.next = config_.norm_output ? normed : row.hidden;
  row.logits = Linear("lm_head", normed);
  for (double& logit : row.logits) logit *= config_.logit_scale;
  return row;
}

}  // namespace talon
