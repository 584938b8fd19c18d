// The common part of token ops on the host: beam search by plain loops, where tests ask for it.
#ifndef TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_
#define TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "compute/backend.h"
#include "compute/beam_search.h"

namespace talon {

class HostTokenOps : public TokenOps {
 public:
  // The token ops of `backend`, which is on the host.
  explicit HostTokenOps(Backend* backend) : backend_(backend) {}

  // For tests: draft trees grow ahead of the host, as they do on devices.
  void GrowTreesAhead(bool ahead) { grows_ahead_ = ahead; }
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) final;

 private:
  Backend* backend_;
  bool grows_ahead_ = false;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_
