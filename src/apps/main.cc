// The `talon` program: wiring and flags only.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace {

// The value of --config, if it was given, without parsing anything else.
std::string ConfigFileArgument(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--config=", 9) == 0) return argv[i] + 9;
    if (std::strcmp(argv[i], "--config") == 0 && i + 1 < argc) return argv[i + 1];
  }
  return "";
}

// CLI11's message, and the nearest flag where one is unknown.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const size_t dash = message.find("--");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && dash != std::string::npos) {
    const std::string flag = message.substr(dash, message.find_first_of(" =", dash) - dash);
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    const std::string nearest = talon::NearestName(flag, known);
    message = "unknown flag " + flag + (nearest.empty() ? "" : ", did you mean " + nearest + "?");
  }
  std::fprintf(stderr, "talon: %s\n", message.c_str());
  std::fprintf(stderr, "talon: see 'talon %s--help'\n",
               command == &app ? "" : (command->get_name() + " ").c_str());
  return talon::kExitBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  talon::Config config;
  const std::string config_file = ConfigFileArgument(argc, argv);
  if (!config_file.empty()) {
    const talon::Status status = talon::LoadConfigFile(config_file, &config);
    if (!status.ok()) return talon::ReportError(status);
  }
  CLI::App app(
      "Talon: exact speculative decoding. A cheap drafter proposes a tree of tokens, the model\n"
      "checks the whole tree in one pass, and the text is the same as without it.\n");
  app.set_version_flag("--version", "talon " TALON_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  talon::CommandBody body;
  talon::AddRunCommand(&app, &config, &body);
  talon::AddCheckCommand(&app, &config, &body);
  talon::AddBenchCommand(&app, &config, &body);
  app.footer(
      "\nExamples:\n"
      "  talon run                                       text from the bundled model\n"
      "  talon run --prompt 'It was a dark night' --max-tokens 64 --temperature 0.8 --seed 7\n"
      "  talon check --model models/tiny                 compare with the model's golden file\n"
      "  talon bench decode --shape llama-1b --weights int8\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error);
  }
  return body();
}
