// A model on several ranks: what the settings allow, and how the ranks meet.
#ifndef TALON_SETUP_RANKS_H_
#define TALON_SETUP_RANKS_H_

#include "base/status.h"
#include "compute/ranks/ranks.h"
#include "model/decoder.h"
#include "setup/config.h"

namespace talon {

// Whether the other settings can be had on config.tensor_parallel ranks.
Status CheckRankSettings(const Config& config);

// Connects the ranks' devices where they can exchange activations directly, and says on the leader
// how they do. `ranks`: null, or all of them call this at the same time.
Status LinkRanks(const Config& config, Backend* backend, Ranks* ranks);

// Waits until all ranks have loaded their part, and fails unless they were started alike. From then
// on nothing waits longer than config.rank_timeout.
Status MeetRanks(const Config& config, const Decoder& decoder, const BackendInfo& device,
                 Ranks* ranks);

}  // namespace talon

#endif  // TALON_SETUP_RANKS_H_
