// The CUDA backend's expert ops: a sparse layer's MLP in four kernels, without a host wait:
//   route      norm, router logits, the experts of each row; then the rows of each expert, in tiles
//   gate_up    for each tile: the expert's gate and up, and its activation
//   down       for each tile: the expert's down, times its weight in the row
//   combine    adds the results of each row's experts, in ascending order
// With several ranks, each has some of the experts. All route alike, and share the results of the
// pairs before these are added.
// A pair is a row and one of its experts. An expert without rows is not read, others once for each
// tile of up to 32 pairs. The bits of a row do not depend on which rows share its tiles.
#ifndef TALON_COMPUTE_CUDA_EXPERTS_CUDA_EXPERT_OPS_H_
#define TALON_COMPUTE_CUDA_EXPERTS_CUDA_EXPERT_OPS_H_

#include <span>

#include "base/status.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/rank_exchange.h"
#include "compute/expert_ops.h"

namespace talon::cuda {

class CudaExpertOps : public ExpertOps {
 public:
  // `exchange` must outlive this.
  CudaExpertOps(Context* context, RankExchange* exchange)
      : context_(context), exchange_(exchange) {}

  // The addresses of the experts' matrices in device memory.
  Result<Buffer> Prepare(std::span<const FeedForwardWeights> experts) override;
  // Queues the kernels. `weights.prepared` is the table of its experts.
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const ExpertsWeights& weights) override;

 private:
  const Stream& stream() const { return context_->stream(); }

  // Results [slots, cols] of own experts become those of all.
  void ShareResults(const ExpertsWeights& weights, const int32_t* experts, int slots, int cols,
                    float* results);

  Context* context_;
  RankExchange* exchange_;
  Scratch counters_{&context_->stream(), context_->generation()};
  Scratch routes_{&context_->stream(), context_->generation()};
  Scratch normed_{&context_->stream(), context_->generation()};
  Scratch gated_{&context_->stream(), context_->generation()};
  Scratch results_{&context_->stream(), context_->generation()};
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_EXPERTS_CUDA_EXPERT_OPS_H_
