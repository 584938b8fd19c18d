#include "model/heads/draft_kind.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/json.h"
#include "model/config_fields.h"
#include "model/files/model_dir.h"
#include "model/files/safetensors.h"

namespace talon {
namespace {

constexpr std::array kBlockConfigs = {"dflash_config", "jetspec_config", "dspark_config"};

// Whether an architecture or the speculators' type contains `part`.
bool NamesPart(const Json& json, const char* part) {
  const auto contains = [&](const Json& item) {
    return item.is_string() && Lowercase(item.get<std::string>()).find(part) != std::string::npos;
  };
  const auto list = json.find("architectures");
  const bool named = list != json.end() && list->is_array() && std::ranges::any_of(*list, contains);
  return named || contains(json.value("speculators_model_type", Json()));
}

bool NamesAnyKey(const Json& json, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return json.contains(key); });
}

bool IsBlockConfig(const Json& json) {
  return NamesAnyKey(json, {"dflash_config", "jetspec_config", "dspark_config", "markov_rank"}) ||
         NamesPart(json, "dflash") || NamesPart(json, "jetspec") || NamesPart(json, "dspark");
}

bool IsTrue(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_boolean() && it->get<bool>();
}

DraftKind BlockKind(const Json& json, bool markov) {
  const Json flat = FlatBlockConfig(json);
  if (markov || NamesPart(json, "dspark")) return DraftKind::kDspark;
  const bool causal = IsTrue(flat, "causal_head") || IsTrue(flat, "causal");
  return causal || NamesPart(json, "jetspec") ? DraftKind::kJetspec : DraftKind::kDflash;
}

std::set<std::string> TensorNames(const SafetensorsReader& file) {
  constexpr std::string_view kModelPrefix = "model.";
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) {
    names.insert(name.starts_with(kModelPrefix) ? name.substr(kModelPrefix.size()) : name);
  }
  return names;
}

// Where config.json is one of an ordinary model, as in many files of EAGLE-1.
DraftKind KindByTensors(const Json& json, const std::set<std::string>& names) {
  const bool midlayer = std::ranges::any_of(
      names, [](const std::string& name) { return name.starts_with("midlayer."); });
  if (midlayer || names.contains("layers.0.hidden_norm.weight")) return DraftKind::kEagle3;
  if (!names.contains("fc.weight")) return DraftKind::kModel;
  if (!names.contains("hidden_norm.weight")) return DraftKind::kEagle;
  return BlockKind(json, names.contains("markov_head.markov_w1.weight"));
}

}  // namespace

const char* DraftKindText(DraftKind kind) {
  switch (kind) {
    case DraftKind::kModel:
      return "a model of its own";
    case DraftKind::kEagle:
      return "an EAGLE-1 or EAGLE-2 head";
    case DraftKind::kEagle3:
      return "an EAGLE-3 head";
    case DraftKind::kDflash:
      return "a DFlash head";
    case DraftKind::kJetspec:
      return "a JetSpec head";
    case DraftKind::kDspark:
      return "a DSpark head";
  }
  return "";
}

bool IsBlockHead(DraftKind kind) {
  return kind == DraftKind::kDflash || kind == DraftKind::kJetspec || kind == DraftKind::kDspark;
}

Json FlatBlockConfig(const Json& json) {
  Json flat = json;
  for (const char* key :
       {"transformer_layer_config", kBlockConfigs[0], kBlockConfigs[1], kBlockConfigs[2]}) {
    const auto nested = json.find(key);
    if (nested != json.end() && nested->is_object()) flat.update(*nested);
  }
  return flat;
}

Result<DraftKind> DraftKindOf(const std::string& dir) {
  TALON_RETURN_IF_ERROR(CheckModelDir(dir));
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(dir + "/config.json"));
  if (!json.is_object()) return InvalidArgument("{}/config.json: is not a JSON object", dir);
  if (IsBlockConfig(json)) return BlockKind(json, json.contains("markov_rank"));
  if (NamesPart(json, "eagle3") ||
      NamesAnyKey(json, {"draft_vocab_size", "eagle_config", "eagle_aux_hidden_state_layer_ids"})) {
    return DraftKind::kEagle3;
  }
  if (NamesPart(json, "eagle")) return DraftKind::kEagle;
  TALON_ASSIGN_OR_RETURN(const auto file, SafetensorsReader::OpenDirectory(dir));
  return KindByTensors(json, TensorNames(file));
}

}  // namespace talon
