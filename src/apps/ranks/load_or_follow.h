// The target of a command, which may be spread over several ranks.
#ifndef TALON_APPS_RANKS_LOAD_OR_FOLLOW_H_
#define TALON_APPS_RANKS_LOAD_OR_FOLLOW_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"

namespace talon {

// As LoadOnRanks. Rank 0 of several returns and runs the command; the others follow it and end the
// process here when it ends, or with kExitStopped when a rank is lost.
Result<std::unique_ptr<LoadedModel>> LoadOrFollow(const Config& config, const std::string& shape,
                                                  int min_output_rows);

}  // namespace talon

#endif  // TALON_APPS_RANKS_LOAD_OR_FOLLOW_H_
