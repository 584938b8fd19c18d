// Stands in for the remote workers in builds without gRPC.
#include "apps/bench/remote.h"
#include "apps/ranks/load_or_follow.h"
#include "apps/run_remote.h"
#include "apps/run_target_worker.h"

namespace talon {
namespace {

Status NoGrpc(const char* what) {
  return Unimplemented("{}: this build has no remote workers (it was built without gRPC)", what);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadTarget(const Config& config, const std::string& shape,
                                                int min_output_rows) {
  return LoadOrFollow(config, shape, min_output_rows);
}

Result<std::unique_ptr<RemoteModel>> OpenRemoteModel(const Config&, std::function<bool()>) {
  return NoGrpc("target_address");
}

Result<int> RunDraftWorker(Config, const DrafterList&) { return NoGrpc("draft-worker"); }

Result<int> RunTargetWorker(Config) { return NoGrpc("target-worker"); }

void AddBenchRemote(Command, Config*, CommandBody*) {}  // there is nothing to measure

}  // namespace talon
