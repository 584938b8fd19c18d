#include "compute/cuda/cuda_layer_ops.h"

#include "base/check.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/kv/kv_ops.h"

namespace talon::cuda {

void CudaLayerOps::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
  cuda::RmsNorm(stream(), x, weight, epsilon, OutOf(out));
}

void CudaLayerOps::RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) {
  TALON_CHECK(x.cols % head_dim == 0);
  cuda::RmsNormHeads(stream(), x, head_dim, weight, epsilon);
}

void CudaLayerOps::Rope(MatrixView x, int head_dim, MatrixView angles) {
  TALON_CHECK(x.rows == angles.rows && x.cols % head_dim == 0 && angles.cols <= head_dim);
  cuda::Rope(stream(), x, head_dim, angles);
}

void CudaLayerOps::SwiGlu(MatrixView gate_up, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  cuda::SwiGlu(stream(), gate_up, OutOf(out));
}

void CudaLayerOps::ClampedGate(MatrixView gate_up, float limit, MatrixView out) {
  cuda::ClampedGate(stream(), gate_up, limit, out);
}

void CudaLayerOps::Attention(const Pass& pass, const AttentionInput& input, MatrixView out) {
  TALON_CHECK(out.rows == input.q.rows);
  AttentionTo(pass, input, OutOf(out));
}

void CudaLayerOps::ReserveAttention(const CudaPass& pass, int head_dim) {
  attention_.Get(AttentionScratchBytes(pass.num_partials(), pass.query_heads(), head_dim));
}

void CudaLayerOps::AttentionTo(const Pass& pass, const AttentionInput& input, const RowsOut& out) {
  const KvShape& shape = input.kv.shape;
  TALON_CHECK(input.q.rows == PlanOf(pass).rows && out.cols == input.q.cols);
  TALON_CHECK(input.q.cols % (shape.head_dim * shape.kv_heads) == 0);
  const AttentionCall call{.plan = PlanOf(pass),
                           .q = input.q,
                           .out = out,
                           .shape = shape,
                           .layer = input.kv.layers[input.layer],
                           .layer_index = input.layer,
                           .scale = input.scale,
                           .window = input.window,
                           .sinks = input.sinks,
                           .scratch = attention_.Get(0)};
  RunAttention(stream(), call);
}

}  // namespace talon::cuda
