#include "apps/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>
#include <variant>

namespace talon {
namespace {

// Numbers are parsed here: CLI11 reads 010 as 8 and clamps what is too large.
template <typename T>
CLI::Option* AddOption(CLI::App* command, const Setting& setting, T* value) {
  const auto assign = [flag = setting.flag, value](const std::string& text) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, *value);
    if (error == std::errc() && stop == end) return;
    const char* problem = error == std::errc::result_out_of_range ? "is out of range"
                          : std::is_integral_v<T>                 ? "must be a whole number"
                                                                  : "must be a number";
    throw CLI::ValidationError(flag, fmt::format("'{}' {}", text, problem));
  };
  return command->add_option_function<std::string>(setting.flag, assign, setting.help)
      ->default_str(fmt::format("{}", *value));
}
CLI::Option* AddOption(CLI::App* command, const Setting& setting, std::string* value) {
  return command->add_option(setting.flag, *value, setting.help)->default_str(*value);
}
template <typename T>
CLI::Option* AddOption(CLI::App* command, const Setting& setting, std::vector<T>* values) {
  CLI::Option* option = command->add_option(setting.flag, *values, setting.help);
  if (std::is_same_v<T, int>) option->delimiter(',');
  return option->allow_extra_args(false);  // one value per flag, so what follows is not swallowed
}
CLI::Option* AddOption(CLI::App* command, const Setting& setting, bool* value) {
  // CLI11 would also take "-", which means standard input.
  const auto is_bool = [](const std::string& text) {
    const bool ok = text.empty() || text == "true" || text == "false" || text == "1" || text == "0";
    return ok ? "" : "'" + text + "', must be true or false";
  };
  // A flag alone means true. The default is part of the help, because CLI11 would take a default
  // string as the value of a flag alone.
  const std::string help = fmt::format("{} (default {})", setting.help, *value);
  const auto assign = [value](const std::string& text) {
    *value = text.empty() || text == "true" || text == "1";
  };
  return command->add_option_function<std::string>(setting.flag, assign, help)
      ->expected(0, 1)
      ->check(is_bool);
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
  } groups[] = {
      {kServeSettings, "Server"},
      {kWorkerSettings, "Worker"},
      {kDraftWorkerSettings, "Drafts"},
      {kRemoteSettings, "Remote workers"},
      {kModelSettings, "Model and memory"},
      {kSamplingSettings, "Sampling"},
      {kSpeculativeSettings, "Speculation"},
  };
  for (const auto& [set, title] : groups) {
    for (const Setting& setting : SettingsOf(config, sets & set)) {
      std::visit([&](auto* value) { return AddOption(command, setting, value); }, setting.value)
          ->type_name(setting.kind)
          ->group(title);
    }
  }
}

std::function<bool(std::string_view flag)> GivenTo(const CLI::App* command) {
  return [command](std::string_view flag) { return command->count(std::string(flag)) > 0; };
}

void SetBody(CLI::App* command, CommandBody* body, std::function<Result<int>()> run) {
  command->callback([body, run = std::move(run)] {
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
