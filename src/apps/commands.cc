#include "apps/commands.h"

#include <cstdio>
#include <utility>
#include <variant>

namespace talon {

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
      CLI::Option* option = std::visit(
          [&](auto* value) { return command->add_option(setting.flag, *value, setting.help); },
          setting.value);
      if (std::holds_alternative<bool*>(setting.value)) option->expected(0, 1)->default_str("true");
      option->group(title);
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
  std::fprintf(stderr, "talon: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInternal ? kExitFailed : kExitBadInput;
}

}  // namespace talon
