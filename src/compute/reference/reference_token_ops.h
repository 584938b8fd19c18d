// Token ops of the reference backend: sorts, and log-softmax in double precision.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_TOKEN_OPS_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_TOKEN_OPS_H_

#include <cstdint>
#include <span>

#include "compute/host/host_token_ops.h"

namespace talon {

class ReferenceTokenOps : public HostTokenOps {
 public:
  using HostTokenOps::HostTokenOps;

  void Argmax(MatrixView x, std::span<int32_t> out) override;
  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override;
};

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_TOKEN_OPS_H_
