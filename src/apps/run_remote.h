// Generation with remote workers, in builds that have gRPC.
#ifndef TALON_APPS_RUN_REMOTE_H_
#define TALON_APPS_RUN_REMOTE_H_

#include <functional>
#include <memory>
#include <string>

#include "apps/config.h"
#include "base/status.h"
#include "engine/request.h"
#include "model/config.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/drafters/registry.h"
#include "text/tokenizer.h"

namespace talon {

// REMOTE for a local target. `tokenizer` is the target's, null: none; it must outlive the drafter.
Result<std::unique_ptr<Drafter>> MakeRemoteDrafter(const Config& config, const DraftBudget& budget,
                                                   const Tokenizer* tokenizer,
                                                   const DrafterTarget& target);

// A target that runs elsewhere: here are its tokenizer and its configuration.
class RemoteModel {
 public:
  virtual ~RemoteModel() = default;
  virtual Status Check(const GenerateRequest& request) const = 0;
  // As Orchestrator::Generate; then writes what telemetry was asked for.
  virtual GenerateResult Generate(GenerateRequest request) = 0;

  std::string name;                      // directory
  std::string address;                   // of the target
  std::string drafter_name;              // with its address, or NONE
  ModelConfig config;                    // of the target
  std::unique_ptr<Tokenizer> tokenizer;  // null: none
  Metrics metrics;
};

// `cancelled` is asked between calls and while they are waited for.
Result<std::unique_ptr<RemoteModel>> OpenRemoteModel(const Config& config,
                                                     std::function<bool()> cancelled);

// Runs a draft worker until SIGINT or SIGTERM. `drafter` is a registry name. The exit code.
Result<int> RunDraftWorker(Config config, const std::string& drafter);

}  // namespace talon

#endif  // TALON_APPS_RUN_REMOTE_H_
