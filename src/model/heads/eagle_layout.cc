#include "model/heads/eagle_layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "model/files/quantised.h"

namespace talon {
namespace {

constexpr std::string_view kModelPrefix = "model.";
constexpr std::string_view kLayer = "midlayer.";
constexpr std::string_view kNumberedLayer = "layers.0.";
constexpr std::array<const char*, 3> kLegacyFcNorms = {"aux_norm_low", "aux_norm_mid",
                                                       "aux_norm_high"};

// The file's names by their canonical spelling: no "model.", the layer as "midlayer.".
class Names {
 public:
  static Result<Names> Of(const SafetensorsReader& file) {
    Names names(&file);
    for (const auto& [name, tensor] : file.tensors()) TALON_RETURN_IF_ERROR(names.Add(name));
    for (const auto& [name, tensor] : file.tensors()) names.AddMatrix(name);
    return names;
  }

  // Those of a file that has the tensors whose presence is a choice.
  static Names Canonical() {
    Names names(nullptr);
    for (const char* name : {"d2t", "lm_head.weight"}) names.actual_.emplace(name, name);
    return names;
  }

  bool Has(const std::string& canonical) const { return actual_.contains(canonical); }
  // The name in the file, or the one it would have there.
  std::string Actual(const std::string& canonical) const {
    const auto it = actual_.find(canonical);
    if (it != actual_.end()) return it->second;
    const bool renamed = numbered_ && canonical.starts_with(kLayer);
    return renamed ? std::string(kNumberedLayer) + canonical.substr(kLayer.size()) : canonical;
  }
  std::string FileOf(const std::string& canonical) const {
    return file_ == nullptr ? "random weights" : file_->FileOf(Actual(canonical));
  }
  const TensorView* Find(const std::string& canonical) const {
    return file_ == nullptr ? nullptr : file_->Find(Actual(canonical));
  }
  const std::map<std::string, std::string>& all() const { return actual_; }

 private:
  explicit Names(const SafetensorsReader* file) : file_(file) {}

  static std::string WithoutModel(const std::string& name) {
    return name.starts_with(kModelPrefix) ? name.substr(kModelPrefix.size()) : name;
  }
  static std::string CanonicalName(std::string name) {
    name = WithoutModel(name);
    if (name.starts_with(kNumberedLayer)) name.replace(0, kNumberedLayer.size(), kLayer);
    return name;
  }

  // A quantised matrix stands for its parts.
  void AddMatrix(const std::string& name) {
    const std::string matrix = QuantisedMatrix::MatrixOf(name);
    if (!matrix.empty()) actual_.emplace(CanonicalName(matrix), matrix);
  }

  Status Add(const std::string& name) {
    const std::string canonical = CanonicalName(name);
    const bool numbered = WithoutModel(name).starts_with(kNumberedLayer);
    if (canonical.starts_with("layers.")) {
      return InvalidArgument("{}: tensor {}: an EAGLE head has one layer, number 0",
                             file_->FileOf(name), name);
    }
    if (canonical.starts_with(kLayer)) {
      if (!layer_name_.empty() && numbered != numbered_) {
        return InvalidArgument("{}: tensors {} and {}: both spellings of the layer in one file",
                               file_->FileOf(name), layer_name_, name);
      }
      numbered_ = numbered;
      layer_name_ = name;
    }
    const auto [it, added] = actual_.emplace(canonical, name);
    if (added) return OkStatus();
    return InvalidArgument("{}: tensors {} and {} are two spellings of one", file_->FileOf(name),
                           it->second, name);
  }

  const SafetensorsReader* file_;  // null: there is none
  std::map<std::string, std::string> actual_;
  std::string layer_name_;  // some tensor of the layer
  bool numbered_ = false;   // the layer is spelled "layers.0."
};

class Finder {
 public:
  Finder(const EagleConfig& config, const Names& names) : config_(config), names_(names) {}

  Result<EagleLayout> Run() {
    TALON_RETURN_IF_ERROR(CheckKind());
    TALON_RETURN_IF_ERROR(FindFeatures());
    FindAttention();
    FindMlp();
    TALON_RETURN_IF_ERROR(FindVocabulary());
    TALON_RETURN_IF_ERROR(CheckRest());
    return std::move(layout_);
  }

 private:
  TensorSpec Spec(const std::string& canonical, std::vector<int64_t> shape) {
    used_.insert(canonical);
    return {names_.Actual(canonical), std::move(shape)};
  }

  Status Misfit(const std::string& canonical, const std::string& problem) const {
    return InvalidArgument("{}: tensor {} {}", names_.FileOf(canonical), names_.Actual(canonical),
                           problem);
  }

  // EAGLE-1 and 2 fuse one feature with the embedding and have no norm of the feature.
  Status CheckKind() const {
    const TensorView* fc = names_.Find("fc.weight");
    const bool eagle3 = names_.Has("midlayer.hidden_norm.weight");
    if (!config_.eagle3 && eagle3) {
      return Misfit("midlayer.hidden_norm.weight",
                    "belongs to EAGLE-3, but config.json is one of an EAGLE-1 head");
    }
    if (!config_.eagle3 || fc == nullptr || eagle3) return OkStatus();
    const bool two_inputs = fc->shape.size() == 2 && fc->shape[1] == int64_t{2} * fc->shape[0];
    if (!two_inputs) return OkStatus();
    return InvalidArgument(
        "{}: the tensors are those of an EAGLE-1 or EAGLE-2 head (fc.weight {}, no hidden_norm), "
        "config.json is one of an EAGLE-3 head",
        names_.FileOf("fc.weight"), ShapeString(fc->shape));
  }

  Status FindFeatures() {
    const int64_t hidden = config_.hidden_size;
    const int64_t features = config_.features_size() + (config_.eagle3 ? 0 : hidden);
    if (const TensorView* fc = names_.Find("fc.weight");
        fc != nullptr && fc->shape != std::vector<int64_t>{hidden, features}) {
      return Misfit(
          "fc.weight",
          fmt::format("has shape {}, {} captured layers of size {}{} need {}",
                      ShapeString(fc->shape), config_.capture_layers.size(),
                      config_.target_hidden_size, config_.eagle3 ? "" : " and the embedding",
                      ShapeString(std::vector<int64_t>{hidden, features})));
    }
    layout_.fc = {Spec("fc.weight", {hidden, features})};
    if (config_.fc_bias) layout_.fc_bias = {Spec("fc.bias", {hidden})};
    if (config_.norm_before_fc) layout_.concat_norm = {Spec("input_norm.weight", {features})};
    if (config_.fc_norm) FindFcNorms();
    return OkStatus();
  }

  // A file with both spellings of these norms is refused by CheckRest.
  void FindFcNorms() {
    const size_t count = config_.capture_layers.size();
    const bool legacy = count == kLegacyFcNorms.size() && !names_.Has("fc_norm.0.weight") &&
                        names_.Has(std::string(kLegacyFcNorms[0]) + ".weight");
    for (size_t i = 0; i < count; ++i) {
      const std::string name = legacy ? kLegacyFcNorms[i] : fmt::format("fc_norm.{}", i);
      layout_.fc_norms.push_back({Spec(name + ".weight", {config_.target_hidden_size})});
    }
  }

  void FindAttention() {
    const int64_t hidden = config_.hidden_size;
    const int64_t q = config_.q_size();
    const int64_t kv = config_.kv_size();
    const std::string attention = "midlayer.self_attn.";
    const int64_t inputs = config_.layer_inputs();
    if (config_.eagle3) {
      layout_.embed_norm = {Spec("midlayer.input_layernorm.weight", {hidden})};
      layout_.hidden_norm = {Spec("midlayer.hidden_norm.weight", {hidden})};
    }
    layout_.q = {Spec(attention + "q_proj.weight", {q, inputs})};
    layout_.kv = {Spec(attention + "k_proj.weight", {kv, inputs}),
                  Spec(attention + "v_proj.weight", {kv, inputs})};
    layout_.output = {Spec(attention + "o_proj.weight", {hidden, q})};
    if (!config_.attention_bias) return;
    layout_.q_bias = {Spec(attention + "q_proj.bias", {q})};
    layout_.kv_bias = {Spec(attention + "k_proj.bias", {kv}),
                       Spec(attention + "v_proj.bias", {kv})};
    // Trainers differ in whether the option includes this one.
    if (names_.Has(attention + "o_proj.bias")) {
      layout_.output_bias = {Spec(attention + "o_proj.bias", {hidden})};
    }
  }

  void FindMlp() {
    const int64_t hidden = config_.hidden_size;
    const int64_t ffn = config_.intermediate_size;
    const std::string mlp = "midlayer.mlp.";
    layout_.post_norm = {Spec("midlayer.post_attention_layernorm.weight", {hidden})};
    layout_.gate_up = {Spec(mlp + "gate_proj.weight", {ffn, hidden}),
                       Spec(mlp + "up_proj.weight", {ffn, hidden})};
    layout_.down = {Spec(mlp + "down_proj.weight", {hidden, ffn})};
    if (!config_.mlp_bias) return;
    layout_.gate_up_bias = {Spec(mlp + "gate_proj.bias", {ffn}), Spec(mlp + "up_proj.bias", {ffn})};
    layout_.down_bias = {Spec(mlp + "down_proj.bias", {hidden})};
  }

  Status FindVocabulary() {
    const int64_t hidden = config_.hidden_size;
    const bool same_hidden = config_.hidden_size == config_.target_hidden_size;
    if (config_.eagle3) layout_.norm = {Spec("norm.weight", {hidden})};
    if (names_.Has("embed_tokens.weight")) {
      layout_.embedding = {Spec("embed_tokens.weight", {config_.vocab_size, hidden})};
    } else if (!same_hidden) {
      return Misfit("embed_tokens.weight",
                    fmt::format("is missing, and the target's has size {} instead of {}",
                                config_.target_hidden_size, hidden));
    }
    if (names_.Has("lm_head.weight")) {
      layout_.head = {Spec("lm_head.weight", {config_.draft_vocab_size, hidden})};
    } else if (!same_hidden || config_.draft_vocab_size != config_.vocab_size) {
      return Misfit("lm_head.weight",
                    fmt::format("is missing, and the target's is [{}, {}] instead of [{}, {}]",
                                config_.vocab_size, config_.target_hidden_size,
                                config_.draft_vocab_size, hidden));
    }
    return FindMaps();
  }

  Status FindMaps() {
    if (names_.Has("d2t")) {
      layout_.d2t = Spec("d2t", {}).name;
    } else if (config_.draft_vocab_size != config_.vocab_size) {
      return Misfit("d2t", fmt::format("is missing, but draft_vocab_size {} is below vocab_size {}",
                                       config_.draft_vocab_size, config_.vocab_size));
    }
    if (names_.Has("t2d")) layout_.t2d = Spec("t2d", {}).name;
    return OkStatus();
  }

  // The option that would account for a tensor; null if none would.
  static const char* OptionFor(const std::string& canonical) {
    const bool attention = canonical.starts_with("midlayer.self_attn.");
    const bool mlp = canonical.starts_with("midlayer.mlp.");
    if (canonical == "fc.bias") return "bias";
    if (canonical == "input_norm.weight") return "norm_before_fc";
    if (canonical.starts_with("fc_norm.")) return "fc_norm";
    if (canonical.starts_with("aux_norm_")) return "use_aux_norm";
    if (attention && canonical.ends_with(".bias")) return "attention_bias";
    if (mlp && canonical.ends_with(".bias")) return "mlp_bias";
    return nullptr;
  }

  // Tensors that are left over: buffers of trainers are ignored, parts of the head are not.
  Status CheckRest() const {
    for (const auto& [canonical, name] : names_.all()) {
      const std::string matrix = QuantisedMatrix::MatrixOf(canonical);
      if (used_.contains(canonical) || used_.contains(matrix)) continue;
      if (canonical.ends_with("inv_freq")) continue;
      if (const char* option = OptionFor(canonical)) {
        return Misfit(canonical, fmt::format("is not accounted for by config.json ({})", option));
      }
      if (canonical.starts_with(kLayer)) {
        return Misfit(canonical,
                      fmt::format("is not part of an EAGLE{} layer", config_.eagle3 ? "-3" : ""));
      }
      if (canonical == "mask_hidden") {
        LogWarning("{}: mask_hidden is ignored: parallel drafting is not supported",
                   names_.FileOf(canonical));
      } else {
        LogInfo("{}: tensor {} is not used", names_.FileOf(canonical), name);
      }
    }
    return OkStatus();
  }

  const EagleConfig& config_;
  const Names& names_;
  EagleLayout layout_;
  std::set<std::string> used_;  // canonical names
};

}  // namespace

std::vector<TensorSpec> EagleLayout::All() const {
  std::vector<TensorSpec> all;
  const auto add = [&](const TensorParts& parts) {
    all.insert(all.end(), parts.begin(), parts.end());
  };
  for (const TensorParts* parts :
       {&fc, &fc_bias, &concat_norm, &embed_norm, &hidden_norm, &q, &q_bias, &kv, &kv_bias, &output,
        &output_bias, &post_norm, &gate_up, &gate_up_bias, &down, &down_bias, &norm, &embedding,
        &head}) {
    add(*parts);
  }
  for (const TensorParts& parts : fc_norms) add(parts);
  return all;
}

Result<EagleLayout> FindEagleTensors(const EagleConfig& config, const SafetensorsReader& file) {
  TALON_ASSIGN_OR_RETURN(const Names names, Names::Of(file));
  return Finder(config, names).Run();
}

Result<EagleLayout> CanonicalEagleTensors(const EagleConfig& config) {
  return Finder(config, Names::Canonical()).Run();
}

}  // namespace talon
