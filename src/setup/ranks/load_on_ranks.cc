#include "setup/ranks/load_on_ranks.h"

#include <utility>

#include "model/ranks/follower.h"
#include "setup/ranks.h"
#include "setup/ranks/mpi_ranks.h"
#include "setup/settings.h"

namespace talon {

Result<std::unique_ptr<LoadedModel>> LoadOnRanks(const Config& config, RankLeader::Lost lost,
                                                 const std::string& shape, int min_output_rows) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kModelSettings));
  if (config.tensor_parallel == 1) return LoadModel(config, shape, min_output_rows);
  TALON_RETURN_IF_ERROR(CheckRankSettings(config));  // before advice to start it with mpirun
  TALON_ASSIGN_OR_RETURN(auto ranks, OpenMpiRanks(config.tensor_parallel));
  TALON_ASSIGN_OR_RETURN(auto model, LoadModel(config, shape, min_output_rows, std::move(ranks)));
  if (!Follows(*model)) {
    model->target->leader()->StartPings(config.rank_timeout / 4.0, std::move(lost));
  }
  return model;
}

bool Follows(const LoadedModel& model) { return model.ranks != nullptr && !model.ranks->leads(); }

Status FollowLeader(LoadedModel* model) {
  return RankFollower(model->ranks.get(), model->target.get(), model->backend.get()).Run();
}

}  // namespace talon
