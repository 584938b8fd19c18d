// Best-first draft trees that grow on the device (best_first_search.h of compute).
#ifndef TALON_COMPUTE_CUDA_TOKENS_BEST_FIRST_H_
#define TALON_COMPUTE_CUDA_TOKENS_BEST_FIRST_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/trees/best_first_search.h"

namespace talon::cuda {

class CudaBestFirstSearch : public BestFirstSearch {
 public:
  // Null where trees may be larger than the kernel handles.
  static Result<std::unique_ptr<CudaBestFirstSearch>> Create(Context* context,
                                                             const BestFirstLimits& limits,
                                                             std::span<const int32_t> token_ids);
  ~CudaBestFirstSearch() override;

  void Rank(std::span<const BlockRows> blocks, MatrixView logits) override;
  // Also sends the rankings to the host, ahead of the pass.
  void LoadTrees(Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> Read() override;

 private:
  CudaBestFirstSearch(Context* context, const BestFirstLimits& limits)
      : context_(context), limits_(limits), top_k_scratch_(&context->stream(), &generation_) {}
  const Stream& stream() const { return context_->stream(); }
  Status Allocate(std::span<const int32_t> token_ids);
  size_t NumEntries(int trees) const {
    return static_cast<size_t>(trees) * limits_.depth * limits_.width;
  }

  Context* context_;
  BestFirstLimits limits_;
  uint64_t generation_ = 0;  // no CUDA graph holds the scratch's address
  Scratch top_k_scratch_;
  int trees_ = 0;                  // ranked since the last Read
  bool sent_ = false;              // whether their rankings were sent to the host
  Buffer token_ids_;               // [draft vocabulary]
  Buffer entries_;                 // [trees][depth][width]
  Buffer rankings_;                // the entries in pinned host memory
  cudaEvent_t arrived_ = nullptr;  // after they were sent
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_BEST_FIRST_H_
