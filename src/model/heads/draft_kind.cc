#include "model/heads/draft_kind.h"

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "model/files/model_dir.h"
#include "model/files/safetensors.h"

namespace talon {
namespace {

bool NamesEagle3(const Json& json) {
  for (const char* key : {"draft_vocab_size", "eagle_config", "speculators_model_type",
                          "eagle_aux_hidden_state_layer_ids"}) {
    if (json.contains(key)) return true;
  }
  const auto list = json.find("architectures");
  if (list == json.end() || !list->is_array()) return false;
  return std::ranges::any_of(*list, [](const Json& item) {
    std::string name = item.is_string() ? item.get<std::string>() : "";
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("eagle") != std::string::npos;
  });
}

}  // namespace

Result<bool> IsEagle3Head(const std::string& dir) {
  TALON_RETURN_IF_ERROR(CheckModelDir(dir));
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(dir + "/config.json"));
  if (!json.is_object()) return InvalidArgument("{}/config.json: is not a JSON object", dir);
  if (NamesEagle3(json)) return true;
  TALON_ASSIGN_OR_RETURN(const auto file, SafetensorsReader::OpenDirectory(dir));
  return std::ranges::any_of(file.tensors(), [](const auto& entry) {
    return entry.first.find("midlayer.") != std::string::npos || entry.first == "fc.weight";
  });
}

}  // namespace talon
