#include "model/heads/eagle_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/valid_values.h"
#include "model/config_fields.h"
#include "model/files/model_dir.h"
#include "model/heads/draft_kind.h"
#include "model/heads/head_rope.h"

namespace talon {
namespace {

constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";
constexpr const char* kAuxLayerIds = "aux_hidden_state_layer_ids";
constexpr const char* kEagleConfig = "eagle_config";
constexpr const char* kNestedLayer = "transformer_layer_config";
constexpr int kMaxCaptured = 16;
constexpr double kMaxLogitScale = 1e6;

bool IsSpeculators(const Json& json) {
  return json.contains(kNestedLayer) || json.contains("speculators_model_type") ||
         json.contains("speculators_config");
}

Status CheckObject(const Json& json, const std::string& what, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null() || it->is_object()) return OkStatus();
  return InvalidArgument("{}: {} is {}, expected an object", what, key, BriefJson(*it));
}

// The three places as one object. The layer's keys are the nested ones where there are any.
Result<Json> Flatten(const Json& json, const std::string& what) {
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  TALON_RETURN_IF_ERROR(CheckObject(json, what, kNestedLayer));
  TALON_RETURN_IF_ERROR(CheckObject(json, what, kEagleConfig));
  Json flat = json;
  if (const auto nested = json.find(kNestedLayer); nested != json.end() && nested->is_object()) {
    flat.update(*nested);
  }
  if (const auto eagle = json.find(kEagleConfig); eagle != json.end() && eagle->is_object()) {
    for (const auto& [key, value] : eagle->items()) {
      if (key != kLayerIds && key != kAuxLayerIds && !flat.contains(key)) flat[key] = value;
    }
  }
  return flat;
}

Status RefuseOtherHeads(const Json& json, const ConfigFields& fields) {
  const auto refuse = [&](const std::string& found) {
    return InvalidArgument("{}: {} is not an EAGLE-3 head", fields.what(), found);
  };
  TALON_ASSIGN_OR_RETURN(const std::string type, fields.String("speculators_model_type", "eagle3"));
  if (Lowercase(type) != "eagle3") return refuse(BriefJson(type));
  if (const auto list = json.find("architectures"); list != json.end() && list->is_array()) {
    for (const Json& item : *list) {
      const std::string name = item.is_string() ? Lowercase(item.get<std::string>()) : "";
      const bool other =
          name.find("eagle") != std::string::npos && name.find("eagle3") == std::string::npos;
      if (other) return refuse(BriefJson(item));
    }
  }
  TALON_ASSIGN_OR_RETURN(const bool captured, fields.Bool("use_aux_hidden_state", true));
  if (!captured) return refuse("a head with use_aux_hidden_state false");
  return OkStatus();
}

// The layer is a Llama layer, so the decoder's parser reads and checks its keys.
Result<ModelConfig> ParseLayer(Json flat, const std::string& what, const ModelConfig& target) {
  flat["architectures"] = {"LlamaForCausalLM"};
  flat.erase("bos_token_id");
  flat.erase("eos_token_id");
  for (const auto& [key, value] :
       {std::pair{"num_hidden_layers", 1}, {"vocab_size", target.vocab_size}}) {
    if (!flat.contains(key) || flat[key].is_null()) flat[key] = value;
  }
  TALON_ASSIGN_OR_RETURN(ModelConfig layer, ParseModelConfig(flat, what));
  if (layer.num_layers != 1) {
    return InvalidArgument("{}: num_hidden_layers {}, an EAGLE head has 1", what, layer.num_layers);
  }
  TALON_RETURN_IF_ERROR(TakeRope(flat, what, target, &layer));
  return layer;
}

void TakeLayer(const ModelConfig& layer, EagleConfig* config) {
  config->hidden_size = layer.hidden_size;
  config->intermediate_size = layer.intermediate_size;
  config->num_heads = layer.num_heads;
  config->num_kv_heads = layer.num_kv_heads;
  config->head_dim = layer.head_dim;
  config->vocab_size = layer.vocab_size;
  config->rms_norm_eps = layer.rms_norm_eps;
  config->rope = layer.rope;
  config->quantised = layer.quantised;
  config->max_position_embeddings = layer.max_context;
  config->attention_bias = layer.qkv_bias;
  config->mlp_bias = layer.mlp_bias;
}

Status ParseHeadOptions(const ConfigFields& fields, bool speculators, EagleConfig* config) {
  TALON_ASSIGN_OR_RETURN(config->fc_bias, fields.Bool("bias", false));
  TALON_ASSIGN_OR_RETURN(config->norm_before_residual,
                         fields.Bool("norm_before_residual", speculators));
  TALON_ASSIGN_OR_RETURN(config->norm_before_fc, fields.Bool("norm_before_fc", false));
  TALON_ASSIGN_OR_RETURN(const bool aux_norm, fields.Bool("use_aux_norm", false));
  TALON_ASSIGN_OR_RETURN(config->fc_norm, fields.Bool("fc_norm", aux_norm));
  TALON_ASSIGN_OR_RETURN(config->norm_output, fields.Bool("norm_output", false));
  TALON_ASSIGN_OR_RETURN(const double scale, fields.Positive("logit_scale", 1));
  TALON_RETURN_IF_ERROR(CheckRange("logit_scale", scale, {1 / kMaxLogitScale, kMaxLogitScale})
                            .WithContext(fields.what()));
  config->logit_scale = static_cast<float>(scale);
  return OkStatus();
}

// Sizes that the head and its target must agree on.
Status ParseShared(const ConfigFields& fields, const ModelConfig& target, EagleConfig* config) {
  const std::string& what = fields.what();
  if (config->vocab_size != target.vocab_size) {
    return InvalidArgument("{}: vocab_size {}, the target has {}", what, config->vocab_size,
                           target.vocab_size);
  }
  TALON_ASSIGN_OR_RETURN(config->draft_vocab_size,
                         fields.Int("draft_vocab_size", 1, target.vocab_size, target.vocab_size));
  constexpr int kMaxHidden = 1 << 17;
  TALON_ASSIGN_OR_RETURN(config->target_hidden_size,
                         fields.Int("target_hidden_size", 1, kMaxHidden, config->hidden_size));
  if (config->target_hidden_size != target.hidden_size) {
    const bool given = fields.Find("target_hidden_size") != nullptr;
    return InvalidArgument("{}: {} {}, the target has hidden_size {}", what,
                           given ? "target_hidden_size" : "hidden_size (no target_hidden_size)",
                           config->target_hidden_size, target.hidden_size);
  }
  return OkStatus();
}

std::vector<int> DefaultCapture(int num_layers) { return {2, num_layers / 2, num_layers - 3}; }

// A list of captured layers, and where it is from.
struct Capture {
  std::vector<int> layers;
  std::string source;
  int shift = 0;  // from the source's convention to input indices
};

Result<Capture> FindCapture(const Json& json, const std::string& what, int num_layers,
                            const std::vector<int>& capture_override) {
  if (!capture_override.empty()) return Capture{capture_override, "eagle3_capture_layers"};
  const bool speculators = IsSpeculators(json);
  const auto eagle = json.find(kEagleConfig);
  const bool nested = eagle != json.end() && eagle->is_object();
  const struct {
    const Json* object;
    const char* key;
    int shift;  // 1: layers whose output is captured
  } places[] = {{&json, kLayerIds, 0},
                {nested ? &*eagle : nullptr, kLayerIds, 1},
                {&json, kAuxLayerIds, speculators ? 0 : 1},
                {nested ? &*eagle : nullptr, kAuxLayerIds, 1}};
  Capture found;
  for (const auto& [object, key, shift] : places) {
    if (object == nullptr) continue;
    const std::string where = object == &json ? what : fmt::format("{}: {}", what, kEagleConfig);
    TALON_ASSIGN_OR_RETURN(const std::vector<int> layers,
                           ConfigFields(*object, where).IntList(key));
    if (layers.empty() || !found.layers.empty()) continue;
    const char* inside = object == &json ? "" : "eagle_config.";
    found = {layers, fmt::format("{}: {}{}", what, inside, key), shift};
  }
  if (!found.layers.empty()) return found;
  return Capture{DefaultCapture(num_layers), "the default"};
}

Status ParseCapture(const Json& json, const ConfigFields& fields, const ModelConfig& target,
                    const std::vector<int>& capture_override, EagleConfig* config) {
  const int n = target.num_layers;
  TALON_ASSIGN_OR_RETURN(Capture capture, FindCapture(json, fields.what(), n, capture_override));
  if (capture.layers.size() > kMaxCaptured) {
    return InvalidArgument("{}: {} captured layers, limit {}", capture.source,
                           capture.layers.size(), kMaxCaptured);
  }
  for (int& layer : capture.layers) {
    if (layer < 0 || layer > n - capture.shift) {
      return InvalidArgument("{}: captured layer {}, a target of {} layers allows 0 to {}",
                             capture.source, layer, n, n - capture.shift);
    }
    layer += capture.shift;
  }
  const auto count = static_cast<int>(capture.layers.size());
  TALON_ASSIGN_OR_RETURN(const int stated,
                         fields.Int("num_aux_hidden_states", 1, kMaxCaptured, count));
  if (stated != count) {
    return InvalidArgument("{}: num_aux_hidden_states {}, but {} captured layers ({})",
                           fields.what(), stated, count, capture.source);
  }
  config->capture_layers = std::move(capture.layers);
  LogInfo("{}: captures the inputs of target layers {} (from {}{})", fields.what(),
          fmt::join(config->capture_layers, ", "), capture.source,
          capture.shift != 0 ? ", output indices" : "");
  return OkStatus();
}

}  // namespace

Result<EagleConfig> ParseEagle3Config(const Json& json, const std::string& what,
                                      const ModelConfig& target,
                                      const std::vector<int>& capture_override) {
  TALON_ASSIGN_OR_RETURN(const Json flat, Flatten(json, what));
  const ConfigFields fields(flat, what);
  TALON_RETURN_IF_ERROR(RefuseOtherHeads(json, fields));
  TALON_ASSIGN_OR_RETURN(const ModelConfig layer, ParseLayer(flat, what, target));
  EagleConfig config;
  TakeLayer(layer, &config);
  TALON_RETURN_IF_ERROR(ParseHeadOptions(fields, IsSpeculators(json), &config));
  TALON_RETURN_IF_ERROR(ParseShared(fields, target, &config));
  TALON_RETURN_IF_ERROR(ParseCapture(json, fields, target, capture_override, &config));
  return config;
}

Result<EagleConfig> ParseEagle1Config(const Json& json, const std::string& what,
                                      const ModelConfig& target) {
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  if (IsSpeculators(json)) {
    return InvalidArgument(
        "{}: an EAGLE head in the speculators' layout, which is unsupported; the "
        "method's own layout and EAGLE-3 are supported",
        what);
  }
  TALON_ASSIGN_OR_RETURN(const ModelConfig layer, ParseLayer(json, what, target));
  const ConfigFields fields(json, what);
  EagleConfig config;
  TakeLayer(layer, &config);
  config.eagle3 = false;
  TALON_ASSIGN_OR_RETURN(config.fc_bias, fields.Bool("bias", true));
  TALON_ASSIGN_OR_RETURN(config.feature_norm, fields.Bool("feature_norm", true));
  TALON_ASSIGN_OR_RETURN(config.attention_bias, fields.Bool("qkv_bias", config.attention_bias));
  TALON_RETURN_IF_ERROR(ParseShared(fields, target, &config));
  if (config.hidden_size != target.hidden_size) {
    return InvalidArgument("{}: hidden_size {}, an EAGLE head has the target's {}", what,
                           config.hidden_size, target.hidden_size);
  }
  config.capture_layers = {target.num_layers};
  return config;
}

EagleConfig UsualEagleConfig(const ModelConfig& target) {
  constexpr int kDraftTokens = 32000;
  EagleConfig config;
  TakeLayer(target, &config);
  config.attention_bias = config.mlp_bias = false;
  config.target_hidden_size = target.hidden_size;
  config.draft_vocab_size = std::min(kDraftTokens, target.vocab_size);
  for (const int layer : DefaultCapture(target.num_layers)) {
    config.capture_layers.push_back(std::max(layer, 0));
  }
  return config;
}

Result<EagleConfig> LoadEagleConfig(const std::string& dir, const ModelConfig& target,
                                    const std::vector<int>& capture_override) {
  TALON_RETURN_IF_ERROR(CheckModelDir(dir));
  const std::string path = dir + "/config.json";
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  TALON_ASSIGN_OR_RETURN(const DraftKind kind, DraftKindOf(dir));
  if (kind == DraftKind::kEagle3) return ParseEagle3Config(json, path, target, capture_override);
  if (kind != DraftKind::kEagle) {
    return InvalidArgument("{}: is {}, not an EAGLE head", dir, DraftKindText(kind));
  }
  if (!capture_override.empty()) {
    return InvalidArgument(
        "eagle3_capture_layers: {} is an EAGLE-1 or EAGLE-2 head, which reads the last hidden "
        "state only",
        dir);
  }
  return ParseEagle1Config(json, path, target);
}

}  // namespace talon
