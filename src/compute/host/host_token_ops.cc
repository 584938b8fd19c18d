#include "compute/host/host_token_ops.h"

#include "compute/host/host_beams.h"

namespace talon {

Result<std::unique_ptr<BeamSearch>> HostTokenOps::NewBeamSearch(
    const BeamLimits& limits, std::span<const int32_t> token_ids) {
  if (!grows_ahead_) return std::unique_ptr<BeamSearch>();
  return std::unique_ptr<BeamSearch>(std::make_unique<HostBeamSearch>(backend_, limits, token_ids));
}

}  // namespace talon
