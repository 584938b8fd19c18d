#include "apps/commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>
#include <variant>

namespace talon {
namespace {

// All names of a setting's flag, the main one first.
std::string Names(const Setting& setting) {
  std::string names = setting.flag;
  for (const std::string& other : {setting.short_flag, setting.alias_flag}) {
    if (!other.empty()) names += "," + other;
  }
  return names;
}

// Numbers are parsed here: CLI11 reads 010 as 8 and clamps what is too large.
template <typename T>
Option AddValue(Command command, const Setting& setting, T* value) {
  const auto parse = [value](const std::string& text) -> std::string {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, *value);
    if (error == std::errc() && stop == end) return "";
    const char* problem = error == std::errc::result_out_of_range ? "is out of range"
                          : std::is_integral_v<T>                 ? "must be a whole number"
                                                                  : "must be a number";
    return fmt::format("'{}' {}", text, problem);
  };
  return command.AddParsed(Names(setting), parse, setting.help)
      .DefaultText(fmt::format("{}", *value));
}
Option AddValue(Command command, const Setting& setting, std::string* value) {
  return command.AddOption(Names(setting), value, setting.help).DefaultText(*value);
}
template <typename T>
Option AddValue(Command command, const Setting& setting, std::vector<T>* values) {
  Option option = command.AddOption(Names(setting), values, setting.help);
  if (std::is_same_v<T, int>) option.Delimiter(',');
  return option.OneValuePerFlag();
}
Option AddValue(Command command, const Setting& setting, bool* value) {
  // CLI11 would also take "-", which means standard input.
  const auto parse = [value](const std::string& text) -> std::string {
    *value = text.empty() || text == "true" || text == "1";
    const bool ok = *value || text == "false" || text == "0";
    return ok ? "" : "'" + text + "', must be true or false (an argument goes before this flag)";
  };
  // A flag alone means true. The default is part of the help, because CLI11 would take a default
  // string as the value of a flag alone.
  const std::string help = fmt::format("{} (default {})", setting.help, *value);
  return command.AddParsed(Names(setting), parse, help).OptionalValue();
}

}  // namespace

void AddSettings(Command command, Config* config, unsigned sets) {
  command
      .AddParsed(
          "--config", [](const std::string&) { return ""; },
          "YAML file with any of these settings; flags win")
      .TypeName("FILE");
  for (const auto& [set, title] : SettingSetTitles()) {
    for (const Setting& setting : SettingsOf(config, sets & set)) {
      std::visit([&](auto* value) { return AddValue(command, setting, value); }, setting.value)
          .TypeName(setting.kind)
          .Group(title);
    }
  }
}

std::function<bool(std::string_view flag)> GivenTo(Command command) {
  return [command](std::string_view flag) { return command.Count(flag) > 0; };
}

void SetBody(Command command, CommandBody* body, std::function<Result<int>()> run) {
  command.OnChosen([body, run = std::move(run)] {
    *body = [run] {
      try {
        const Result<int> code = run();
        return code.ok() ? *code : ReportError(code.status());
      } catch (const std::exception& error) {  // the standard library's, such as bad_alloc
        return ReportError(Internal("{}", error.what()));
      }
    };
  });
}

int ReportError(const Status& status) {
  std::string line = status.message();
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "talon: %s\n", line.c_str());
  const bool failed =
      status.code() == StatusCode::kInternal || status.code() == StatusCode::kDeadlineExceeded;
  return failed ? kExitFailed : kExitBadInput;
}

}  // namespace talon
