#include "compute/host/host_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/host/host_beams.h"
#include "compute/host/host_pass.h"
#include "compute/ranks/ranks.h"

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
  AddProduct(gated, *weights.down, weights.down_bias, weights.ranks, x);
}

void HostBackend::AddProduct(MatrixView x, const Weight& w, const float* bias, Ranks* ranks,
                             MatrixView out) {
  if (ranks == nullptr) {
    return MatMul({.x = x, .w = &w, .bias = bias, .out = out, .accumulate = true});
  }
  const MatrixView sum = Take(&summed_, x.rows, w.rows());
  MatMul({.x = x, .w = &w, .out = sum});
  ranks->Sum(sum);
  for (int r = 0; r < out.rows; ++r) {
    float* to = out.data + r * out.stride;
    const float* from = sum.data + r * sum.stride;
    for (int j = 0; j < out.cols; ++j) to[j] += bias == nullptr ? from[j] : from[j] + bias[j];
  }
}

void HostBackend::ExpertFeedForward(MatrixView x, const float* norm, float epsilon,
                                    const ExpertsWeights& weights) {
  const int experts = weights.router->rows();
  const MatrixView normed = Take(&normed_, x.rows, x.cols);
  RmsNorm(x, norm, epsilon, normed);
  const MatrixView logits = Take(&router_logits_, x.rows, experts);
  MatMul({.x = normed, .w = weights.router, .bias = weights.router_bias, .out = logits});
  expert_choice_.Build(logits, weights.rule);
  Ranks* ranks = weights.ranks;
  const std::vector<int> bounds = SegmentBounds(experts, 1);
  const IndexRange own =
      ranks == nullptr ? SegmentsOf(0, 1) : SegmentsOf(ranks->rank(), ranks->size());
  const MatrixView sum = SumExperts(
      weights, normed, std::span(bounds).subspan(own.first, own.count() + 1), expert_sums_);
  if (ranks != nullptr) ranks->Sum(sum);
  for (int r = 0; r < x.rows; ++r) {
    float* to = x.data + r * x.stride;
    const float* from = sum.data + r * sum.stride;
    for (int j = 0; j < x.cols; ++j) to[j] += from[j];
  }
}

MatrixView HostBackend::SumExperts(const ExpertsWeights& weights, MatrixView x,
                                   std::span<const int> bounds, std::span<Buffer> scratch) {
  if (bounds.size() == 2) {
    const MatrixView sums = Take(&scratch[0], x.rows, x.cols);
    std::fill_n(sums.data, static_cast<size_t>(x.rows) * x.cols, 0.0f);
    AddExperts(weights, {bounds[0], bounds[1]}, x, sums);
    return sums;
  }
  const std::span left = bounds.first(bounds.size() / 2 + 1);
  const std::span right = bounds.subspan(bounds.size() / 2);
  if (left.front() == left.back()) return SumExperts(weights, x, right, scratch);
  const MatrixView sums = SumExperts(weights, x, left, scratch);
  if (right.front() == right.back()) return sums;
  const MatrixView others = SumExperts(weights, x, right, scratch.subspan(1));
  const auto elements = static_cast<size_t>(sums.rows) * sums.cols;
  for (size_t i = 0; i < elements; ++i) sums.data[i] += others.data[i];
  return sums;
}

void HostBackend::AddExperts(const ExpertsWeights& weights, IndexRange experts, MatrixView x,
                             MatrixView sums) {
  for (int e = experts.first; e < experts.last; ++e) {
    const std::span<const int32_t> rows = expert_choice_.rows(e);
    if (rows.empty()) continue;
    ++experts_read_;
    const MatrixView in = Take(&expert_rows_, static_cast<int>(rows.size()), sums.cols);
    GatherRows(x, rows, in);
    const MatrixView out =
        RunExpert(in, weights.experts[e - weights.first_expert], weights.rule.gate_limit);
    const std::span<const float> shares = expert_choice_.weights(e);
    for (int i = 0; i < out.rows; ++i) {
      float* to = sums.data + rows[i] * sums.stride;
      const float* from = out.data + i * out.stride;
      for (int j = 0; j < sums.cols; ++j) to[j] += shares[i] * from[j];
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
  AddProduct(attended, w, bias, input.ranks, out);
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
