// Experts on the host: rows are gathered by expert, and go through plain products.
#ifndef TALON_COMPUTE_HOST_HOST_EXPERT_OPS_H_
#define TALON_COMPUTE_HOST_HOST_EXPERT_OPS_H_

#include <array>
#include <cstdint>
#include <span>

#include "compute/backend.h"
#include "compute/host/host_experts.h"
#include "compute/host/host_scratch.h"
#include "compute/ranks/segments.h"

namespace talon {

class HostExpertOps : public ExpertOps {
 public:
  // The ops of `backend`, which is on the host.
  explicit HostExpertOps(Backend* backend) : backend_(backend) {}

  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const ExpertsWeights& weights) override;
  int64_t experts_read() const override { return experts_read_; }

 private:
  // One expert's outputs for `x`, in scratch rows.
  MatrixView RunExpert(MatrixView x, const FeedForwardWeights& expert, float gate_limit);
  // What the experts of segments, which begin and end at `bounds`, add to the rows, summed pairwise
  // in one of `scratch`, of which every level of the sum takes one.
  MatrixView SumExperts(const ExpertsWeights& weights, MatrixView x, std::span<const int> bounds,
                        std::span<HostScratch> scratch);
  // Adds what the experts of a range make of x to `sums`, in ascending order.
  void AddExperts(const ExpertsWeights& weights, IndexRange experts, MatrixView x, MatrixView sums);

  Backend* backend_;
  HostScratch normed_{backend_}, logits_{backend_};
  HostScratch rows_{backend_}, gate_up_{backend_}, gated_{backend_}, out_{backend_};
  std::array<HostScratch, 4> sums_{HostScratch(backend_), HostScratch(backend_),
                                   HostScratch(backend_), HostScratch(backend_)};
  ExpertRows choice_;
  int64_t experts_read_ = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_EXPERT_OPS_H_
