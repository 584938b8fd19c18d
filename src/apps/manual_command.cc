// `talon completion` and `talon man`: the program described for shells and for `man`.
#include <cstdio>
#include <map>

#include "apps/commands.h"
#include "apps/common/manual.h"

namespace talon {
namespace {

// Fills in the valid values, which the table of settings has.
void FillChoices(const std::map<std::string, std::vector<std::string>>& choices,
                 CommandInfo* command) {
  for (OptionInfo& option : command->options) {
    for (const std::string& flag : option.flags) {
      if (const auto at = choices.find(flag); at != choices.end()) option.choices = at->second;
    }
  }
  for (CommandInfo& each : command->commands) FillChoices(choices, &each);
}

CommandInfo DescribeProgram(Command app) {
  std::map<std::string, std::vector<std::string>> choices;
  Config config;
  for (const Setting& setting : SettingsOf(&config, kAllSettings)) {
    for (const SettingChoice& choice : setting.choices) {
      choices[setting.flag].push_back(choice.name);
    }
  }
  CommandInfo program = app.Describe();
  FillChoices(choices, &program);
  return program;
}

Result<int> Write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) return Internal("standard output: cannot write");
  return kExitOk;
}

}  // namespace

void AddManualCommands(Command app, Config*, CommandBody* body) {
  auto shell = std::make_shared<std::string>();
  Command completion = app.AddSubcommand("completion", "Print the completion script of a shell");
  completion.AddOption("shell", shell.get(), "bash or zsh")
      .Required()
      .TypeName("SHELL")
      .OneOf({"bash", "zsh"});
  completion.SetFooter(
      "\nFor the current shell:\n"
      "  source <(talon completion bash)\n"
      "\n'make install' puts both where the shells find them.\n");
  SetBody(completion, body, [app, shell] {
    const CommandInfo program = DescribeProgram(app);
    return Write(*shell == "bash" ? BashCompletion(program) : ZshCompletion(program));
  });
  Command manual = app.AddSubcommand("man", "Print the manual page, for 'man -l -'");
  SetBody(manual, body,
          [app] { return Write(ManualPage(DescribeProgram(app), "talon " TALON_VERSION)); });
}

}  // namespace talon
