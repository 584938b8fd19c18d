// Generation with remote workers, in builds that have gRPC.
#ifndef TALON_APPS_RUN_REMOTE_H_
#define TALON_APPS_RUN_REMOTE_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "model/config.h"
#include "observe/metrics.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// As LoadModel (setup/loader.h), for a model whose engine may draft with a remote worker.
Result<std::unique_ptr<LoadedModel>> LoadTarget(const Config& config, const std::string& shape = "",
                                                int min_output_rows = 1);

// A target that runs elsewhere: here are its tokenizer and its configuration.
class RemoteModel {
 public:
  virtual ~RemoteModel() = default;
  virtual Status Check(const GenerateRequest& request) const = 0;
  // As Orchestrator::Generate; then writes what telemetry was asked for.
  virtual GenerateResult Generate(GenerateRequest request) = 0;

  std::string name;                      // directory
  std::string address;                   // address of the target
  std::string drafter_name;              // with its address, or NONE
  ModelConfig config;                    // config of the target
  std::unique_ptr<Tokenizer> tokenizer;  // null: none
  Metrics metrics;
};

// `cancelled` is asked between calls and while they are waited for.
Result<std::unique_ptr<RemoteModel>> OpenRemoteModel(const Config& config,
                                                     std::function<bool()> cancelled);

// Runs a draft worker with one drafter until SIGINT or SIGTERM. Returns the exit code.
Result<int> RunDraftWorker(Config config, const DrafterList& drafter);

}  // namespace talon

#endif  // TALON_APPS_RUN_REMOTE_H_
