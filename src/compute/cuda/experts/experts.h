// A sparse layer's MLP (Backend::ExpertFeedForward) in four kernels, without a host wait:
//   route      norm, router logits, the experts of each row; then the rows of each expert, in tiles
//   gate_up    for each tile: the expert's gate and up, and its activation
//   down       for each tile: the expert's down, times its weight in the row
//   combine    adds the results of each row's experts, in ascending order
// A pair is a row and one of its experts. An expert without rows is not read, others once for each
// tile of up to 32 pairs. The bits of a row do not depend on which rows share its tiles.
#ifndef TALON_COMPUTE_CUDA_EXPERTS_EXPERTS_H_
#define TALON_COMPUTE_CUDA_EXPERTS_EXPERTS_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

class Experts {
 public:
  Experts(const Stream* stream, uint64_t* generation);

  // Backend::PrepareExperts: the addresses of the experts' matrices in device memory.
  static Result<Buffer> MakeTable(const Stream& stream,
                                  std::span<const FeedForwardWeights> experts);

  // Queues the kernels. `weights.prepared` is the table of its experts.
  void Run(MatrixView x, const float* norm, float epsilon, const ExpertsWeights& weights);

 private:
  const Stream* stream_;
  Scratch counters_, routes_, normed_, gated_, results_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_EXPERTS_EXPERTS_H_
