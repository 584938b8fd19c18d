// The MLP of a sparse layer: a router chooses some experts for each row, each of them an MLP.
#ifndef TALON_COMPUTE_EXPERT_OPS_H_
#define TALON_COMPUTE_EXPERT_OPS_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "compute/matrix.h"

namespace talon {

class Ranks;

// A transformer layer's MLP. gate_up stacks the gate's rows and as many of up.
struct FeedForwardWeights {
  const Weight* gate_up = nullptr;
  const float* gate_up_bias = nullptr;  // or null
  const Weight* down = nullptr;
  const float* down_bias = nullptr;
  // Null, or the ranks that have a part of the MLP each: outputs of gate_up, inputs of down.
  Ranks* ranks = nullptr;
};

// How a sparse layer chooses its experts, and what they compute.
struct ExpertRule {
  int per_row = 1;  // experts that each row goes through, those with the largest router logits
  // Weights of the chosen: the softmax of their logits or, if false, of all experts' logits.
  bool normalised = true;
  // 0: SwiGLU, as in Backend::FeedForward. Above: the clamped gate (LayerOps::ClampedGate).
  float gate_limit = 0;
};

// A transformer layer's MLP of experts.
struct ExpertsWeights {
  const Weight* router = nullptr;      // [experts, hidden]
  const float* router_bias = nullptr;  // or null
  std::span<const FeedForwardWeights> experts;
  const void* prepared = nullptr;  // from ExpertOps::Prepare of `experts`
  ExpertRule rule;
  // Null, or the ranks that have some of the experts each; here they begin with `first_expert`.
  Ranks* ranks = nullptr;
  int first_expert = 0;
};

// Queued in order with the backend's other ops.
class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  // What FeedForward needs to know of a layer's experts, once they are packed; may be empty.
  virtual Result<Buffer> Prepare(std::span<const FeedForwardWeights> /*experts*/) {
    return Buffer();
  }

  // x += the sum of w_e * expert_e(RmsNorm(x)) over the experts that each row chose, added in
  // ascending order of the experts (a device that sums in segments: within segments of the experts,
  // then pairwise) whatever the other rows chose. An expert that no row chose is not read, each
  // other one once.
  virtual void FeedForward(MatrixView x, const float* norm, float epsilon,
                           const ExpertsWeights& weights) = 0;

  // How many experts FeedForward has read since the start, of all layers together; 0 where the
  // device does not count.
  virtual int64_t experts_read() const { return 0; }
};

}  // namespace talon

#endif  // TALON_COMPUTE_EXPERT_OPS_H_
