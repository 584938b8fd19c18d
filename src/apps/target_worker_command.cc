// `talon target-worker`: the flags of the target worker.
#include "apps/commands.h"
#include "apps/run_target_worker.h"

namespace talon {

void AddTargetWorkerCommand(Command app, Config* config, CommandBody* body) {
  Command command = app.AddSubcommand(
      "target-worker", "Verify the drafts of remote clients over gRPC, one session each");
  AddSettings(command, config, kWorkerSettings | kModelSettings | kSpeculativeSettings);
  command.SetFooter(
      "\nSampling and drafts are each call's own. Of the settings of speculation those of\n"
      "NWOR and SpecPV apply (specpv_mode fast; exact mode verifies in full).\n"
      "\nExamples:\n"
      "  talon target-worker --model DIR            for clients on this machine\n"
      "  talon target-worker --model DIR --host 0.0.0.0 --tls-cert-file server.pem \\\n"
      "      --tls-key-file server.key --tls-ca-file clients.pem\n"
      "\nThen, from another terminal:\n"
      "  talon run --prompt 'Once upon a time' --target-address 127.0.0.1:50052 \\\n"
      "      --speculative-algorithm REMOTE --draft-address 127.0.0.1:50051\n"
      "\nCtrl-C or SIGTERM ends it after the calls on their way; a second one at once.\n");
  SetBody(command, body, [config] { return RunTargetWorker(*config); });
}

}  // namespace talon
