// The common part of token ops on the host: masks, and draft trees by plain loops, where tests ask
// for it.
#ifndef TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_
#define TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "compute/backend.h"
#include "compute/trees/beam_search.h"
#include "compute/trees/best_first_search.h"

namespace talon {

// Sets the logits of tokens whose bit is 0 to -inf, NaN excepted. REQUIRES: a bit for each.
void MaskLogits(std::span<const uint64_t> allowed, std::span<float> logits);

class HostTokenOps : public TokenOps {
 public:
  // The token ops of `backend`, which is on the host.
  explicit HostTokenOps(Backend* backend) : backend_(backend) {}

  // For tests: draft trees grow ahead of the host, as they do on devices.
  void GrowTreesAhead(bool ahead) { grows_ahead_ = ahead; }
  void MaskRows(MatrixView x, std::span<const int32_t> rows, std::span<const uint64_t> masks) final;
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) final;
  Result<std::unique_ptr<BestFirstSearch>> NewBestFirstSearch(
      const BestFirstLimits& limits, std::span<const int32_t> token_ids) final;

 private:
  Backend* backend_;
  bool grows_ahead_ = false;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_TOKEN_OPS_H_
