// `talon bench`: measurements, each a table and optionally JSON.
#include "apps/bench/bench.h"
#include "apps/bench/remote.h"
#include "apps/commands.h"

namespace talon {

void AddBenchCommand(Command app, Config* config, CommandBody* body) {
  Command command = app.AddSubcommand("bench", "Measure ops, decoding and verification");
  command.RequireSubcommand();
  AddBenchAgreement(command, config, body);
  AddBenchBatch(command, config, body);
  AddBenchDecode(command, config, body);
  AddBenchGpu(command, config, body);
  AddBenchGrammar(command, config, body);
  AddBenchLoad(command, config, body);
  AddBenchLongContext(command, config, body);
  AddBenchNwor(command, config, body);
  AddBenchOps(command, config, body);
  AddBenchPayoff(command, config, body);
  AddBenchRanks(command, config, body);
  AddBenchRemote(command, config, body);
  AddBenchScv(command, config, body);
  AddBenchSimulate(command, config, body);
  AddBenchTasks(command, config, body);
  AddBenchVerify(command, config, body);
}

}  // namespace talon
