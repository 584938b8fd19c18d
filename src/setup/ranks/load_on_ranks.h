// A model that may be spread over several processes, for the program and the Python package.
#ifndef TALON_SETUP_RANKS_LOAD_ON_RANKS_H_
#define TALON_SETUP_RANKS_LOAD_ON_RANKS_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "model/ranks/leader.h"
#include "setup/config.h"
#include "setup/loader.h"

namespace talon {

// As LoadModel, on config.tensor_parallel ranks: each gets its part, rank 0 leads, and the others
// must follow it at once. Rank 0 calls `lost` when one is gone while no request runs.
Result<std::unique_ptr<LoadedModel>> LoadOnRanks(const Config& config, RankLeader::Lost lost,
                                                 const std::string& shape = "",
                                                 int min_output_rows = 1);

// Whether the model is a part that another process leads.
bool Follows(const LoadedModel& model);
// Does what rank 0 says. OK when that has ended; else why this rank cannot go on.
Status FollowLeader(LoadedModel* model);

}  // namespace talon

#endif  // TALON_SETUP_RANKS_LOAD_ON_RANKS_H_
