#include "apps/bench.h"

namespace talon {

void AddBenchOps(CLI::App* bench, Config* config, CommandBody* body) {
  CLI::App* command = bench->add_subcommand("ops", "Time of each op and its share of the peak");
  AddSettings(command, config, kModelSettings);
  command->callback([body] { *body = [] { return kExitOk; }; });
}

}  // namespace talon
