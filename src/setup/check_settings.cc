// Checks of the table's values.
#include <algorithm>
#include <cctype>
#include <type_traits>

#include "setup/settings.h"

namespace talon {
namespace {

bool SameIgnoringCase(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// `shown` is the value as an error quotes it.
Status CheckChoice(const Setting& setting, const std::string& value, const std::string& shown) {
  const bool known =
      std::any_of(setting.choices.begin(), setting.choices.end(), [&](const SettingChoice& choice) {
        return setting.any_case ? SameIgnoringCase(value, choice.name) : value == choice.name;
      });
  if (known) return OkStatus();
  return InvalidArgument("{}: {}, must be {}", setting.key, shown, ValidValues(setting));
}

template <typename T>
Status CheckValue(const Setting& setting, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (setting.check != nullptr) return setting.check(value);
    if (!setting.choices.empty()) return CheckChoice(setting, value, "'" + value + "'");
  } else if constexpr (std::is_arithmetic_v<T>) {
    const std::string text = fmt::format("{}", value);
    if (!setting.choices.empty()) return CheckChoice(setting, text, text);
    if (setting.range) return CheckRange(setting.key, value, *setting.range);
  }
  return OkStatus();
}

}  // namespace

bool IsAutoMethod(const std::string& method) { return SameIgnoringCase(method, kAutoMethod); }

std::string ValidValues(const Setting& setting) {
  if (setting.range) return setting.range->ToString();
  std::vector<std::string> names;
  for (const SettingChoice& choice : setting.choices) names.push_back(choice.name);
  return JoinWithOr(names);
}

Status CheckSettings(const Config& config, unsigned sets) {
  Config values = config;  // because the table points to what it describes
  for (const Setting& setting : SettingsOf(&values, sets)) {
    TALON_RETURN_IF_ERROR(
        std::visit([&](const auto* value) { return CheckValue(setting, *value); }, setting.value));
  }
  return OkStatus();
}

Status CheckWorkerConfig(const WorkerConfig& worker) {
  Config config;
  config.worker = worker;
  return CheckSettings(config, kWorkerSettings | kDraftWorkerSettings);
}

Status CheckRemoteConfig(const RemoteConfig& remote) {
  Config config;
  config.remote = remote;
  return CheckSettings(config, kRemoteSettings | kTargetSettings);
}

}  // namespace talon
