// Settings from a YAML file.
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "base/file.h"
#include "base/nearest_name.h"
#include "setup/settings.h"

namespace talon {
namespace {

bool IsGroup(const std::string& key) {
  return key == kSpeculativeGroup || key == kWorkerGroup || key == kRemoteGroup;
}

// These throw YAML::Exception if the value is of another type. A list may be written as a single
// value.
template <typename T>
void Convert(const YAML::Node& node, T* target) {
  *target = node.as<T>();
}
template <typename T>
void Convert(const YAML::Node& node, std::vector<T>* target) {
  *target = node.IsScalar() ? std::vector<T>{node.as<T>()} : node.as<std::vector<T>>();
}

std::string Describe(const YAML::Node& node) {
  if (node.IsNull()) return "no value";
  if (node.IsMap()) return "a map";
  return node.IsSequence() ? "a list" : "'" + node.Scalar() + "'";
}

Status Assign(const YAML::Node& node, const Setting& setting, const std::string& where) {
  return std::visit(
      [&](auto* target) {
        try {
          if (!node.IsNull()) {
            Convert(node, target);
            return OkStatus();
          }
        } catch (const YAML::Exception&) {  // reported below
        }
        return InvalidArgument("{}: {}, must be {}", where, Describe(node), TypeText(setting));
      },
      setting.value);
}

Status UnknownKey(const std::string& key, const std::string& group, const std::string& where,
                  const std::vector<Setting>& settings) {
  std::vector<std::string> known;
  if (group.empty()) known.assign({kSpeculativeGroup, kWorkerGroup, kRemoteGroup});
  for (const Setting& setting : settings) {
    if (setting.group == group) known.push_back(setting.key);
    if (setting.group != group && (setting.key == key || setting.alias == key)) {
      return InvalidArgument("{}: key '{}' belongs {}", where, key,
                             group.empty() ? "under " + setting.group : "outside of " + group);
    }
  }
  const std::string nearest = NearestName(key, known);
  return InvalidArgument("{}: unknown key '{}'{}", where, key,
                         nearest.empty() ? "" : ", did you mean '" + nearest + "'?");
}

Status ApplyMap(const YAML::Node& map, const std::string& group,
                const std::vector<Setting>& settings, const std::string& path,
                std::vector<std::string>* keys) {
  for (const auto& entry : map) {
    const std::string where = fmt::format("{}:{}", path, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) {
      return InvalidArgument("{}: a key is {}, must be text", where, Describe(entry.first));
    }
    const std::string& key = entry.first.Scalar();
    if (group.empty() && IsGroup(key)) {
      if (!entry.second.IsMap()) {
        return InvalidArgument("{}: {}: {}, must be a map", where, key, Describe(entry.second));
      }
      TALON_RETURN_IF_ERROR(ApplyMap(entry.second, key, settings, path, keys));
      continue;
    }
    const auto at = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
      return setting.group == group && (setting.key == key || setting.alias == key);
    });
    if (at == settings.end()) return UnknownKey(key, group, where, settings);
    TALON_RETURN_IF_ERROR(Assign(entry.second, *at, where + ": " + key));
    keys->push_back(at->key);
  }
  return OkStatus();
}

}  // namespace

Status LoadConfigFile(const std::string& path, Config* config) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return LoadConfigText(text, path, config);
}

Status LoadConfigText(const std::string& text, const std::string& name, Config* config) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}:{}: not valid YAML: {}", name, error.mark.line + 1, error.msg);
  }
  if (root.IsNull()) return OkStatus();
  if (!root.IsMap()) return InvalidArgument("{}: not a map of settings", name);
  return ApplyMap(root, "", SettingsOf(config, kAllSettings), name, &config->file_keys);
}

}  // namespace talon
