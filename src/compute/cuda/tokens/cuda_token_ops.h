// The CUDA backend's token ops: kernels over rows of logits, results in pinned host memory.
#ifndef TALON_COMPUTE_CUDA_TOKENS_CUDA_TOKEN_OPS_H_
#define TALON_COMPUTE_CUDA_TOKENS_CUDA_TOKEN_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "compute/cuda/runtime/context.h"
#include "compute/token_ops.h"

namespace talon::cuda {

class CudaTokenOps : public TokenOps {
 public:
  explicit CudaTokenOps(Context* context) : context_(context) {}

  void Argmax(MatrixView x, std::span<int32_t> out) override;
  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override;
  void MaskRows(MatrixView x, std::span<const int32_t> rows,
                std::span<const uint64_t> masks) override;
  bool DrawsTokens() const override { return true; }
  void DrawTokens(const Pass& pass, MatrixView logits, std::span<const RowDraw> draws,
                  std::span<int32_t> out) override;
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) override;
  Result<std::unique_ptr<BestFirstSearch>> NewBestFirstSearch(
      const BestFirstLimits& limits, std::span<const int32_t> token_ids) override;

 private:
  const Stream& stream() const { return context_->stream(); }
  // Host memory that the device writes; holds until the next call.
  template <typename T>
  T* Pinned(size_t count);

  Context* context_;
  Scratch masks_{&context_->stream(), context_->generation()};
  Scratch draws_{&context_->stream(), context_->generation()};
  Scratch best_{&context_->stream(), context_->generation()};
  Scratch top_k_scratch_{&context_->stream(), context_->generation()};
  Buffer pinned_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_CUDA_TOKEN_OPS_H_
