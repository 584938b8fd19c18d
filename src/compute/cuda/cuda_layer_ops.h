// The CUDA backend's layer ops: one kernel each, attention one or two.
#ifndef TALON_COMPUTE_CUDA_CUDA_LAYER_OPS_H_
#define TALON_COMPUTE_CUDA_CUDA_LAYER_OPS_H_

#include "compute/backend.h"
#include "compute/cuda/cuda_pass.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/rows_out.h"
#include "compute/layer_ops.h"

namespace talon::cuda {

class CudaLayerOps : public LayerOps {
 public:
  explicit CudaLayerOps(Context* context) : context_(context) {}

  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) override;
  void Rope(MatrixView x, int head_dim, MatrixView angles) override;
  void SwiGlu(MatrixView gate_up, MatrixView out) override;
  void ClampedGate(MatrixView gate_up, float limit, MatrixView out) override;
  void Attention(const Pass& pass, const AttentionInput& input, MatrixView out) override;

  // Room for the attention of a loaded pass. Not in Attention, which a replayed pass does not call.
  void ReserveAttention(const CudaPass& pass, int head_dim);
  // Attention whose results are of any type, and padded.
  void AttentionTo(const Pass& pass, const AttentionInput& input, const RowsOut& out);

 private:
  const Stream& stream() const { return context_->stream(); }

  Context* context_;
  Scratch attention_{&context_->stream(), context_->generation()};
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_CUDA_LAYER_OPS_H_
