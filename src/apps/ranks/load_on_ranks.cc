#include "apps/ranks/load_on_ranks.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "apps/commands.h"
#include "apps/ranks/mpi_ranks.h"
#include "base/log.h"
#include "model/ranks/follower.h"
#include "setup/ranks.h"
#include "setup/settings.h"

namespace talon {
namespace {

// Follows until the leader ends. The exit code.
int Follow(std::unique_ptr<LoadedModel> model) {
  // The leader ends when its requests have, and then tells the others.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const int rank = model->ranks->rank();
  const Status status =
      RankFollower(model->ranks.get(), model->target.get(), model->backend.get()).Run();
  if (status.ok()) return kExitOk;
  LogError("rank {} has stopped: {}", rank, status.message());
  return kExitStopped;
}

// A ping found a rank lost while no request ran, so none has to be answered.
void EndProcess(const std::string& reason) {
  LogError("the engine has stopped: {}", reason);
  std::fflush(nullptr);
  std::_Exit(kExitStopped);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadOnRanks(const Config& config, const std::string& shape,
                                                 int min_output_rows) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kModelSettings));
  if (config.tensor_parallel == 1) return LoadModel(config, shape, min_output_rows);
  TALON_RETURN_IF_ERROR(CheckRankSettings(config));  // before advice to start it with mpirun
  TALON_ASSIGN_OR_RETURN(auto ranks, OpenMpiRanks(config.tensor_parallel));
  TALON_ASSIGN_OR_RETURN(auto model, LoadModel(config, shape, min_output_rows, std::move(ranks)));
  if (!model->ranks->leads()) std::exit(Follow(std::move(model)));
  model->target->leader()->StartPings(config.rank_timeout / 4.0, EndProcess);
  return model;
}

}  // namespace talon
