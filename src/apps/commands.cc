#include "apps/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>
#include <variant>

namespace talon {
namespace {

template <typename T>
CLI::Option* AddOption(CLI::App* command, const Setting& setting, T* value) {
  return command->add_option(setting.flag, *value, setting.help)
      ->default_str(fmt::format("{}", *value));
}
template <typename T>
CLI::Option* AddOption(CLI::App* command, const Setting& setting, std::vector<T>* values) {
  CLI::Option* option = command->add_option(setting.flag, *values, setting.help);
  if (std::is_same_v<T, int>) option->delimiter(',');
  return option->allow_extra_args(false);  // one value per flag, so what follows is not swallowed
}
CLI::Option* AddOption(CLI::App* command, const Setting& setting, bool* value) {
  return command->add_option(setting.flag, *value, setting.help)
      ->expected(0, 1)
      ->default_str(*value ? "true" : "false");
}
CLI::Option* AddOption(CLI::App* command, const Setting& setting, int64_t* value) {
  // CLI11 would clamp a number that is too large.
  const auto in_range = [](const std::string& text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool ok = error == std::errc() && end == text.data() + text.size();
    return ok ? "" : "'" + text + "', must be a whole number below 2^63";
  };
  return AddOption<int64_t>(command, setting, value)->check(in_range);
}

}  // namespace

void AddSettings(CLI::App* command, Config* config, unsigned sets) {
  command
      ->add_option_function<std::string>(
          "--config", [](const std::string&) {}, "YAML file with any of these settings; flags win")
      ->type_name("FILE");
  const struct {
    unsigned set;
    const char* title;
  } groups[] = {{kModelSettings, "Model and memory"},
                {kSamplingSettings, "Sampling"},
                {kSpeculativeSettings, "Speculation"}};
  for (const auto& [set, title] : groups) {
    for (const Setting& setting : SettingsOf(config, sets & set)) {
      std::visit([&](auto* value) { return AddOption(command, setting, value); }, setting.value)
          ->type_name(setting.kind)
          ->group(title);
    }
  }
}

void SetBody(CLI::App* command, CommandBody* body, std::function<Result<int>()> run) {
  command->callback([body, run = std::move(run)] {
    *body = [run] {
      const Result<int> code = run();
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

int ReportError(const Status& status) {
  std::string line = status.message();
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "talon: %s\n", line.c_str());
  return status.code() == StatusCode::kInternal ? kExitFailed : kExitBadInput;
}

}  // namespace talon
