// `talon draft-worker`: the flags of the draft worker.
#include "apps/commands.h"
#include "apps/run_remote.h"
#include "remote/draft_sessions.h"
#include "setup/draft_choice.h"

namespace talon {
namespace {

struct DraftWorkerChoice {
  bool ngram = false;
  bool suffix = false;
};

// A model unless something else is asked for.
Result<DrafterList> ChooseDrafter(const Config& config, const DraftWorkerChoice& choice) {
  if (choice.ngram) return DrafterList(DrafterKind::kNgram);
  if (choice.suffix) return DrafterList(DrafterKind::kSuffix);
  const SpeculativeConfig& speculative = config.speculative;
  if (IsAutoMethod(speculative.method) && speculative.draft_model_path.empty()) {
    return DrafterList(DrafterKind::kStandalone);
  }
  TALON_ASSIGN_OR_RETURN(const DraftChoice chosen, ChooseDrafters(config));
  if (chosen.drafters.none()) return DrafterList(DrafterKind::kStandalone);
  TALON_RETURN_IF_ERROR(CheckRemoteDrafter(chosen.drafters));
  return chosen.drafters;
}

}  // namespace

void AddDraftWorkerCommand(Command app, Config* config, CommandBody* body) {
  auto choice = std::make_shared<DraftWorkerChoice>();
  Command command =
      app.AddSubcommand("draft-worker", "Draft for remote clients over gRPC, one session each");
  Option ngram =
      command.AddFlag("--ngram", &choice->ngram, "Draft what followed the same tokens before");
  command
      .AddFlag("--suffix", &choice->suffix,
               "Draft what followed the longest matching suffix, by counts")
      .Excludes(ngram);
  AddSettings(command, config,
              kWorkerSettings | kDraftWorkerSettings | kModelSettings | kSpeculativeSettings);
  command.SetFooter(
      "\nDrafts come from the model of --model (none = the bundled draft model), or from\n"
      "what was seen before (--ngram, --suffix). A head (EAGLE3, DFLASH, ..) needs its\n"
      "target's hidden states and cannot run apart from it.\n"
      "\nExamples:\n"
      "  talon draft-worker --model DIR             for clients on this machine\n"
      "  talon draft-worker --ngram --port 50061\n"
      "\nThen, from another terminal, with the target here or elsewhere:\n"
      "  talon run --speculative-algorithm REMOTE --draft-address 127.0.0.1:50051\n"
      "\nCtrl-C or SIGTERM ends it after the calls on their way; a second one at once.\n");
  SetBody(command, body, [config, choice]() -> Result<int> {
    TALON_ASSIGN_OR_RETURN(const DrafterList drafter, ChooseDrafter(*config, *choice));
    return RunDraftWorker(*config, drafter);
  });
}

}  // namespace talon
