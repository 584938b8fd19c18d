#include "apps/commands.h"

#include <cstdio>
#include <variant>

namespace talon {

void AddSettings(CLI::App* command, Config* config, unsigned sets) {
  static std::string config_file;  // read by main.cc before parsing
  command->add_option("--config", config_file, "YAML file with any of these settings; flags win")
      ->type_name("FILE");
  for (const Setting& setting : SettingsOf(config, sets)) {
    const char* group =
        !setting.group.empty()      ? "Speculation"
        : setting.flag == "--model" ? "Options"
        : (sets & kSamplingSettings) != 0 && std::holds_alternative<float*>(setting.value)
            ? "Sampling"
            : "Options";
    CLI::Option* option = std::visit(
        [&](auto* value) -> CLI::Option* {
          using T = std::remove_pointer_t<decltype(value)>;
          if constexpr (std::is_same_v<T, bool>) {
            return command->add_option(setting.flag, *value, setting.help)
                ->expected(0, 1)
                ->default_str("true");
          } else {
            return command->add_option(setting.flag, *value, setting.help);
          }
        },
        setting.value);
    option->group(group);
  }
}

int ReportError(const Status& status) {
  std::fprintf(stderr, "talon: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInternal ? kExitFailed : kExitBadInput;
}

}  // namespace talon
