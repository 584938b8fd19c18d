// The `talon` program: wiring and flags only.
#include <cstdio>
#include <cstring>
#include <string>

#include "apps/commands.h"
#include "apps/common/command_line.h"
#include "base/contain.h"
#include "setup/device.h"

namespace {

// The value of --config, if it was given, without parsing anything else.
std::string ConfigFileArgument(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--config=", 9) == 0) return argv[i] + 9;
    if (std::strcmp(argv[i], "--config") == 0 && i + 1 < argc) return argv[i + 1];
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  talon::Config config;
  const std::string config_file = ConfigFileArgument(argc, argv);
  if (!config_file.empty()) {
    const talon::Status status = talon::LoadConfigFile(config_file, &config);
    if (!status.ok()) return talon::ReportError(status);
  }
  talon::CommandLine line(
      "Talon: exact speculative decoding. A cheap drafter proposes a tree of tokens,\n"
      "the model checks the whole tree in one pass, and the text is the same as\n"
      "without it.\n",
      "talon " TALON_VERSION " (devices: " + talon::BuildDevices() + ")");
  talon::Command app = line.root();
  talon::CommandBody body;
  talon::AddRunCommand(app, &config, &body);
  talon::AddChatCommand(app, &config, &body);
  talon::AddServeCommand(app, &config, &body);
  talon::AddShowCommand(app, &config, &body);
  talon::AddDraftWorkerCommand(app, &config, &body);
  talon::AddTargetWorkerCommand(app, &config, &body);
  talon::AddCheckCommand(app, &config, &body);
  talon::AddBenchCommand(app, &config, &body);
  talon::AddDoctorCommand(app, &config, &body);
  talon::AddTokenizeCommand(app, &config, &body);
  talon::AddManualCommands(app, &config, &body);
  app.SetFooter(
      "\nExamples:\n"
      "  talon show                                 what drafts gain, measured here\n"
      "  talon chat                                 talk with the bundled model\n"
      "  talon run 'It was a dark night' --temperature 0.8 --seed 7\n"
      "  talon run --speculative-algorithm NONE     the same text without drafts\n"
      "  talon serve                                OpenAI's API on port 8080\n"
      "  talon check --model models/tiny            compare with its golden files\n"
      "  talon doctor                               what the bundled head gains\n"
      "  talon bench decode --shape llama-1b --weights int8\n"
      "\n'talon COMMAND --help' lists a command's flags.\n"
      "Exit codes: 0 done, 1 failed or differs, 2 bad input, 3 server's engine stopped.\n");
  const auto exit_code = line.Parse(argc, argv);
  if (!exit_code.ok()) return talon::ReportError(exit_code.status());
  if (exit_code->has_value()) return **exit_code;
  int code = talon::kExitFailed;
  const talon::Status contained = talon::Contain([&] { code = body(); });
  return contained.ok() ? code : talon::ReportError(contained);
}
