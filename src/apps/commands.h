// The program's subcommands. Each adds itself to the command line and returns the exit code when
// run: 0 done, 1 something failed or differs, 2 bad input.
#ifndef TALON_APPS_COMMANDS_H_
#define TALON_APPS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "setup/settings.h"

namespace talon {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;

// Set by the command that the user chose.
using CommandBody = std::function<int()>;

void AddRunCommand(CLI::App* app, Config* config, CommandBody* body);
void AddCheckCommand(CLI::App* app, Config* config, CommandBody* body);
void AddBenchCommand(CLI::App* app, Config* config, CommandBody* body);
void AddDoctorCommand(CLI::App* app, Config* config, CommandBody* body);
void AddDraftWorkerCommand(CLI::App* app, Config* config, CommandBody* body);
void AddServeCommand(CLI::App* app, Config* config, CommandBody* body);
void AddTargetWorkerCommand(CLI::App* app, Config* config, CommandBody* body);
void AddTokenizeCommand(CLI::App* app, Config* config, CommandBody* body);

// Adds the flags of `sets`, and --config, to a command. The file named by --config is applied
// before the flags are parsed (main.cc), so flags win.
void AddSettings(CLI::App* command, Config* config, unsigned sets);

// Tells which of its flags a command was given; a settings file does not count.
std::function<bool(std::string_view flag)> GivenTo(const CLI::App* command);

// Makes `run` what the program does when `command` is chosen; its failures are reported.
void SetBody(CLI::App* command, CommandBody* body, std::function<Result<int>()> run);

// Prints "talon: message" and returns the exit code that fits.
int ReportError(const Status& status);

}  // namespace talon

#endif  // TALON_APPS_COMMANDS_H_
