#include "compute/host/host_backend.h"

#include <utility>

#include "base/check.h"
#include "compute/host/host_beams.h"
#include "compute/host/host_pass.h"

namespace talon {

Result<Buffer> HostBackend::Allocate(size_t bytes) {
  if (bytes > most_bytes_) return ResourceExhausted("compute: no memory for {} bytes", bytes);
  return AllocateMemory(bytes);
}

MatrixView HostBackend::Take(Buffer* buffer, int rows, int cols) {
  const size_t bytes = static_cast<size_t>(rows) * cols * sizeof(float);
  if (buffer->bytes() < bytes) {
    auto grown = Allocate(bytes);
    TALON_CHECK(grown.ok(), "{}", grown.status().message());
    *buffer = std::move(grown).value();
  }
  return {static_cast<float*>(buffer->data()), rows, cols, cols};
}

void HostBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const MatrixView gate_up = Take(&gate_up_, x.rows, weights.gate_up->rows());
  MatMul({.x = x,
          .norm = norm,
          .epsilon = epsilon,
          .w = weights.gate_up,
          .bias = weights.gate_up_bias,
          .out = gate_up});
  const MatrixView gated = TakeOperand(x.rows, gate_up.cols / 2);
  SwiGlu(gate_up, gated);
  MatMul({.x = gated, .w = weights.down, .bias = weights.down_bias, .out = x, .accumulate = true});
}

void HostBackend::ExpertFeedForward(MatrixView x, const float* norm, float epsilon,
                                    const ExpertsWeights& weights) {
  const auto experts = static_cast<int>(weights.experts.size());
  const MatrixView normed = Take(&normed_, x.rows, x.cols);
  RmsNorm(x, norm, epsilon, normed);
  const MatrixView logits = Take(&router_logits_, x.rows, experts);
  MatMul({.x = normed, .w = weights.router, .bias = weights.router_bias, .out = logits});
  expert_choice_.Build(logits, weights.rule);
  for (int e = 0; e < experts; ++e) {
    const std::span<const int32_t> rows = expert_choice_.rows(e);
    if (rows.empty()) continue;
    ++experts_read_;
    const MatrixView in = Take(&expert_rows_, static_cast<int>(rows.size()), x.cols);
    GatherRows(normed, rows, in);
    const MatrixView out = RunExpert(in, weights.experts[e], weights.rule.gate_limit);
    const std::span<const float> shares = expert_choice_.weights(e);
    for (int i = 0; i < out.rows; ++i) {
      float* to = x.data + rows[i] * x.stride;
      const float* from = out.data + i * out.stride;
      for (int j = 0; j < x.cols; ++j) to[j] += shares[i] * from[j];
    }
  }
}

MatrixView HostBackend::RunExpert(MatrixView x, const FeedForwardWeights& expert,
                                  float gate_limit) {
  const MatrixView gate_up = Take(&gate_up_, x.rows, expert.gate_up->rows());
  MatMul({.x = x, .w = expert.gate_up, .bias = expert.gate_up_bias, .out = gate_up});
  const MatrixView gated = TakeOperand(x.rows, gate_up.cols / 2);
  if (gate_limit > 0) {
    ClampedGate(gate_up, gate_limit, gated);
  } else {
    SwiGlu(gate_up, gated);
  }
  const MatrixView out = Take(&expert_out_, x.rows, expert.down->rows());
  MatMul({.x = gated, .w = expert.down, .bias = expert.down_bias, .out = out});
  return out;
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
  MatMul({.x = attended, .w = &w, .bias = bias, .out = out, .accumulate = true});
}

void HostBackend::GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) {
  const PassPlan& plan = HostPlanOf(pass);
  GatherRows(x, rows == PassRows::kOutputs ? plan.output_rows : plan.feature_rows, out);
}

Result<std::unique_ptr<BeamSearch>> HostBackend::NewBeamSearch(const BeamLimits& limits,
                                                               std::span<const int32_t> token_ids) {
  if (!grows_ahead_) return std::unique_ptr<BeamSearch>();
  return std::unique_ptr<BeamSearch>(std::make_unique<HostBeamSearch>(this, limits, token_ids));
}

}  // namespace talon
