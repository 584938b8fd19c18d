// `talon bench`: measurements, each a table and optionally JSON.
#include "apps/bench/bench.h"
#include "apps/bench/remote.h"
#include "apps/commands.h"

namespace talon {

void AddBenchCommand(CLI::App* app, Config* config, CommandBody* body) {
  CLI::App* command = app->add_subcommand("bench", "Measure ops, decoding and verification");
  command->require_subcommand(1);
  AddBenchBatch(command, config, body);
  AddBenchDecode(command, config, body);
  AddBenchGpu(command, config, body);
  AddBenchLoad(command, config, body);
  AddBenchLongContext(command, config, body);
  AddBenchOps(command, config, body);
  AddBenchRemote(command, config, body);
  AddBenchScv(command, config, body);
  AddBenchVerify(command, config, body);
}

}  // namespace talon
