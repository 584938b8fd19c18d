#include "model/heads/block_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "model/config_fields.h"
#include "model/heads/head_rope.h"

namespace talon {
namespace {

constexpr int kMaxBlock = 64;
constexpr int kMaxCaptured = 16;

// What changes the head's output and is not computed here.
Status RefuseUnsupported(const Json& flat, const ConfigFields& fields) {
  const auto refuse = [&](const std::string& what) {
    return Unimplemented("{}: {} is unsupported in a block head", fields.what(), what);
  };
  for (const char* key : {"conv_kernel_size", "selector_rank"}) {
    if (fields.Find(key) != nullptr) return refuse(fmt::format("{} (DFlash 2)", key));
  }
  for (const char* key : {"use_swa", "use_sliding_window", "attention_sink_bias"}) {
    TALON_ASSIGN_OR_RETURN(const bool on, fields.Bool(key, false));
    if (on) return refuse(key);
  }
  if (const auto types = flat.find("layer_types"); types != flat.end() && types->is_array()) {
    for (const Json& type : *types) {
      if (type != "full_attention") return refuse(fmt::format("layer type {}", BriefJson(type)));
    }
  }
  TALON_ASSIGN_OR_RETURN(const std::string markov, fields.String("markov_head_type", "vanilla"));
  if (markov != "vanilla") return refuse(fmt::format("markov_head_type {}", markov));
  return OkStatus();
}

// The layers are those of a known family, so the decoder's parser reads and checks their keys.
Result<ModelConfig> ParseLayers(Json flat, const ConfigFields& fields, const ModelConfig& target) {
  TALON_ASSIGN_OR_RETURN(const std::string type, fields.String("model_type", "qwen3"));
  const bool llama = type == "llama";
  flat["architectures"] = {llama ? "LlamaForCausalLM" : "Qwen3ForCausalLM"};
  for (const char* key : {"bos_token_id", "eos_token_id", "layer_types", "sliding_window",
                          "use_sliding_window", "max_window_layers"}) {
    flat.erase(key);
  }
  if (fields.Find("vocab_size") == nullptr) flat["vocab_size"] = target.vocab_size;
  if (fields.Find("max_position_embeddings") == nullptr) {
    flat["max_position_embeddings"] = target.max_position_embeddings;
  }
  TALON_ASSIGN_OR_RETURN(ModelConfig layers, ParseModelConfig(flat, fields.what()));
  TALON_RETURN_IF_ERROR(TakeRope(flat, fields.what(), target, &layers));
  if (layers.vocab_size != target.vocab_size) {
    return InvalidArgument("{}: vocab_size {}, the target has {}", fields.what(), layers.vocab_size,
                           target.vocab_size);
  }
  return layers;
}

// Spread over the target's layers but the first and the last three, as the method's authors do.
std::vector<int> DefaultOutputs(int target_layers, int draft_layers) {
  if (draft_layers == 1) return {target_layers / 2};
  std::vector<int> outputs;
  for (int i = 0; i < draft_layers; ++i) {
    outputs.push_back(static_cast<int>(
        std::nearbyint(1 + static_cast<double>(i) * (target_layers - 4) / (draft_layers - 1))));
  }
  return outputs;
}

Status ParseCapture(const ConfigFields& fields, const ModelConfig& target,
                    const std::vector<int>& capture_override, BlockConfig* config) {
  const int n = target.num_layers;
  TALON_ASSIGN_OR_RETURN(const int made_for, fields.Int("num_target_layers", 1, 1 << 16, n));
  if (made_for != n) {
    return InvalidArgument("{}: made for a target of {} layers, this one has {}", fields.what(),
                           made_for, n);
  }
  TALON_ASSIGN_OR_RETURN(std::vector<int> outputs, fields.IntList("target_layer_ids"));
  TALON_ASSIGN_OR_RETURN(const auto inputs, fields.IntList("aux_hidden_state_layer_ids"));
  const bool as_inputs = !capture_override.empty() || (outputs.empty() && !inputs.empty());
  if (outputs.empty()) outputs = DefaultOutputs(n, config->layers.num_layers);
  if (as_inputs) outputs = capture_override.empty() ? inputs : capture_override;
  if (outputs.size() > kMaxCaptured) {
    return InvalidArgument("{}: {} captured layers, limit {}", fields.what(), outputs.size(),
                           kMaxCaptured);
  }
  const int shift = as_inputs ? 0 : 1;  // the input of a layer is the output of the one before
  for (const int layer : outputs) {
    if (layer < 0 || layer > n - shift) {
      return InvalidArgument("{}: captured layer {}, a target of {} layers allows 0 to {}",
                             fields.what(), layer, n, n - shift);
    }
    config->capture_layers.push_back(layer + shift);
  }
  LogInfo("{}: captures the inputs of target layers {}", fields.what(),
          fmt::join(config->capture_layers, ", "));
  return OkStatus();
}

Status ParseBlock(const ConfigFields& fields, DraftKind kind, const ModelConfig& target,
                  BlockConfig* config) {
  TALON_ASSIGN_OR_RETURN(config->block_size, fields.Int("block_size", 1, kMaxBlock));
  TALON_ASSIGN_OR_RETURN(config->mask_token, fields.Int("mask_token_id", 0, target.vocab_size - 1));
  const bool jetspec = kind == DraftKind::kJetspec;
  TALON_ASSIGN_OR_RETURN(const bool causal, fields.Bool("causal", jetspec));
  TALON_ASSIGN_OR_RETURN(config->causal, fields.Bool("causal_head", causal));
  config->markov = kind == DraftKind::kDspark;
  TALON_ASSIGN_OR_RETURN(config->from_anchor, fields.Bool("sample_from_anchor", config->markov));
  if (config->num_drafts() < 1) {
    return InvalidArgument("{}: block_size 1 drafts nothing", fields.what());
  }
  TALON_ASSIGN_OR_RETURN(config->draft_vocab_size,
                         fields.Int("draft_vocab_size", 1, target.vocab_size, target.vocab_size));
  constexpr int kMaxHidden = 1 << 17;
  TALON_ASSIGN_OR_RETURN(config->target_hidden_size, fields.Int("target_hidden_size", 1, kMaxHidden,
                                                                config->layers.hidden_size));
  if (config->target_hidden_size == target.hidden_size) return OkStatus();
  return InvalidArgument("{}: made for a target of hidden_size {}, this one has {}", fields.what(),
                         config->target_hidden_size, target.hidden_size);
}

}  // namespace

Result<BlockConfig> ParseBlockConfig(const Json& json, const std::string& what, DraftKind kind,
                                     const ModelConfig& target,
                                     const std::vector<int>& capture_override) {
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  const Json flat = FlatBlockConfig(json);
  const ConfigFields fields(flat, what);
  TALON_RETURN_IF_ERROR(RefuseUnsupported(flat, fields));
  BlockConfig config;
  TALON_ASSIGN_OR_RETURN(config.layers, ParseLayers(flat, fields, target));
  TALON_RETURN_IF_ERROR(ParseBlock(fields, kind, target, &config));
  TALON_RETURN_IF_ERROR(ParseCapture(fields, target, capture_override, &config));
  return config;
}

Result<BlockConfig> UsualBlockConfig(DraftKind kind, int block_size, const ModelConfig& target,
                                     const std::vector<int>& capture_override) {
  const Json json = {{"num_hidden_layers", 5},
                     {"hidden_size", target.hidden_size},
                     {"intermediate_size", 3 * target.hidden_size},
                     {"num_attention_heads", target.num_heads},
                     {"num_key_value_heads", target.num_kv_heads},
                     {"head_dim", target.head_dim},
                     {"rms_norm_eps", target.rms_norm_eps},
                     {"block_size", block_size},
                     {"mask_token_id", target.vocab_size - 1}};
  return ParseBlockConfig(json, "a usual block head", kind, target, capture_override);
}

Result<BlockConfig> LoadBlockConfig(const std::string& dir, const ModelConfig& target,
                                    const std::vector<int>& capture_override) {
  TALON_ASSIGN_OR_RETURN(const DraftKind kind, DraftKindOf(dir));
  if (!IsBlockHead(kind)) {
    return InvalidArgument("{}: is {}, not a block head", dir, DraftKindText(kind));
  }
  const std::string path = dir + "/config.json";
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  return ParseBlockConfig(json, path, kind, target, capture_override);
}

}  // namespace talon
