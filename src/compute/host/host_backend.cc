#include "compute/host/host_backend.h"

#include "base/check.h"
#include "compute/host/host_pass.h"
#include "compute/ranks/ranks.h"

namespace talon {

Result<Buffer> HostBackend::Allocate(size_t bytes, Placement /*placement*/) {
  if (bytes > most_bytes_) return ResourceExhausted("compute: no memory for {} bytes", bytes);
  return AllocateMemory(bytes);
}

void HostBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const MatrixView gate_up = gate_up_.Take(x.rows, weights.gate_up->rows());
  MatMul({.x = x,
          .norm = norm,
          .epsilon = epsilon,
          .w = weights.gate_up,
          .bias = weights.gate_up_bias,
          .out = gate_up});
  const MatrixView gated = TakeOperand(x.rows, gate_up.cols / 2);
  SwiGlu(gate_up, gated);
  AddProduct(gated, *weights.down, weights.down_bias, weights.ranks, x);
}

void HostBackend::AddProduct(MatrixView x, const Weight& w, const float* bias, Ranks* ranks,
                             MatrixView out) {
  if (ranks == nullptr) {
    return MatMul({.x = x, .w = &w, .bias = bias, .out = out, .accumulate = true});
  }
  const MatrixView sum = summed_.Take(x.rows, w.rows());
  MatMul({.x = x, .w = &w, .out = sum});
  ranks->Sum(sum);
  for (int r = 0; r < out.rows; ++r) {
    float* to = out.data + r * out.stride;
    const float* from = sum.data + r * sum.stride;
    for (int j = 0; j < out.cols; ++j) to[j] += bias == nullptr ? from[j] : from[j] + bias[j];
  }
}

void HostBackend::ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                             MatrixView angles, const KvView& kv, int layer) {
  MatMul(product);
  const int head_dim = kv.shape.head_dim;
  if (rows.q_norm != nullptr) RmsNormHeads(rows.q, head_dim, rows.q_norm, rows.epsilon);
  if (rows.k_norm != nullptr) RmsNormHeads(rows.k, head_dim, rows.k_norm, rows.epsilon);
  Rope(rows.q, head_dim, angles);
  Rope(rows.k, head_dim, angles);
  kv_ops()->StoreKv(pass, rows.k, rows.v, kv, layer);
}

void HostBackend::AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                                  const float* bias, MatrixView out) {
  const MatrixView attended = TakeOperand(input.q.rows, input.q.cols);
  Attention(pass, input, attended);
  AddProduct(attended, w, bias, input.ranks, out);
}

void HostBackend::CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                           std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size() && out.cols == x.cols);
  for (size_t i = 0; i < from.size(); ++i) {
    std::copy_n(x.data + from[i] * x.stride, x.cols, out.data + to[i] * out.stride);
  }
}

void HostBackend::GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) {
  const PassPlan& plan = HostPlanOf(pass);
  GatherRows(x, rows == PassRows::kOutputs ? plan.output_rows : plan.feature_rows, out);
}

}  // namespace talon
