// From settings to the options of remote generation. Does not need gRPC.
#ifndef TALON_SETUP_REMOTE_OPTIONS_H_
#define TALON_SETUP_REMOTE_OPTIONS_H_

#include <functional>
#include <string_view>

#include "base/status.h"
#include "model/config.h"
#include "remote/draft_client.h"
#include "remote/orchestrator.h"
#include "setup/config.h"
#include "spec/drafter.h"

namespace talon {

DraftClientOptions MakeDraftClientOptions(const RemoteConfig& remote);

// The largest tree that the engine asks a draft worker for.
DraftBudget RemoteDraftBudget(const Config& config);

// For a target that runs elsewhere; `model` is its configuration.
Result<OrchestratorOptions> MakeOrchestratorOptions(const Config& config, const ModelConfig& model);

// Refuses addresses of workers that contradict the method.
Status CheckRemoteMethod(const Config& config);

// Refuses flags without effect: of workers where none is named, and of the model where a worker has
// it. A file may hold such settings, because workers and their clients can share one.
using FlagGiven = std::function<bool(std::string_view flag)>;
Status CheckIgnoredFlags(const Config& config, const FlagGiven& given);

}  // namespace talon

#endif  // TALON_SETUP_REMOTE_OPTIONS_H_
