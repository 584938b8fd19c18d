// The program's subcommands. Each adds itself to the command line and returns the exit code when
// run: 0 done, 1 something failed or differs, 2 bad input.
#ifndef TALON_APPS_COMMANDS_H_
#define TALON_APPS_COMMANDS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "apps/common/command_line.h"
#include "base/status.h"
#include "setup/settings.h"

namespace talon {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitStopped = 3;  // a server whose engine cannot go on; a new process can

// Set by the command that the user chose.
using CommandBody = std::function<int()>;

void AddRunCommand(Command app, Config* config, CommandBody* body);
void AddChatCommand(Command app, Config* config, CommandBody* body);
void AddCheckCommand(Command app, Config* config, CommandBody* body);
void AddBenchCommand(Command app, Config* config, CommandBody* body);
void AddDoctorCommand(Command app, Config* config, CommandBody* body);
void AddDraftWorkerCommand(Command app, Config* config, CommandBody* body);
void AddManualCommands(Command app, Config* config, CommandBody* body);
void AddServeCommand(Command app, Config* config, CommandBody* body);
void AddShowCommand(Command app, Config* config, CommandBody* body);
void AddTargetWorkerCommand(Command app, Config* config, CommandBody* body);
void AddTokenizeCommand(Command app, Config* config, CommandBody* body);

// Adds the flags of `sets`, and --config, to a command. The file named by --config is applied
// before the flags are parsed (main.cc), so flags win.
void AddSettings(Command command, Config* config, unsigned sets);

// Tells which of its flags a command was given; a settings file does not count.
std::function<bool(std::string_view flag)> GivenTo(Command command);

// Makes `run` what the program does when `command` is chosen; its failures are reported.
void SetBody(Command command, CommandBody* body, std::function<Result<int>()> run);

// Prints "talon: message" and returns the exit code that fits.
int ReportError(const Status& status);

}  // namespace talon

#endif  // TALON_APPS_COMMANDS_H_
