#include "compute/host/host_expert_ops.h"

#include <algorithm>
#include <vector>

#include "compute/ranks/ranks.h"

namespace talon {

void HostExpertOps::FeedForward(MatrixView x, const float* norm, float epsilon,
                                const ExpertsWeights& weights) {
  const int experts = weights.router->rows();
  const MatrixView normed = normed_.Take(x.rows, x.cols);
  backend_->layer_ops()->RmsNorm(x, norm, epsilon, normed);
  const MatrixView logits = logits_.Take(x.rows, experts);
  backend_->MatMul({.x = normed, .w = weights.router, .bias = weights.router_bias, .out = logits});
  choice_.Build(logits, weights.rule);
  Ranks* ranks = weights.ranks;
  const std::vector<int> bounds = SegmentBounds(experts, 1);
  const IndexRange own =
      ranks == nullptr ? SegmentsOf(0, 1) : SegmentsOf(ranks->rank(), ranks->size());
  const MatrixView sum =
      SumExperts(weights, normed, std::span(bounds).subspan(own.first, own.count() + 1), sums_);
  if (ranks != nullptr) ranks->Sum(sum);
  for (int r = 0; r < x.rows; ++r) {
    float* to = x.data + r * x.stride;
    const float* from = sum.data + r * sum.stride;
    for (int j = 0; j < x.cols; ++j) to[j] += from[j];
  }
}

MatrixView HostExpertOps::SumExperts(const ExpertsWeights& weights, MatrixView x,
                                     std::span<const int> bounds, std::span<HostScratch> scratch) {
  if (bounds.size() == 2) {
    const MatrixView sums = scratch[0].Take(x.rows, x.cols);
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

void HostExpertOps::AddExperts(const ExpertsWeights& weights, IndexRange experts, MatrixView x,
                               MatrixView sums) {
  for (int e = experts.first; e < experts.last; ++e) {
    const std::span<const int32_t> rows = choice_.rows(e);
    if (rows.empty()) continue;
    ++experts_read_;
    const MatrixView in = rows_.Take(static_cast<int>(rows.size()), sums.cols);
    backend_->GatherRows(x, rows, in);
    const MatrixView out =
        RunExpert(in, weights.experts[e - weights.first_expert], weights.rule.gate_limit);
    const std::span<const float> shares = choice_.weights(e);
    for (int i = 0; i < out.rows; ++i) {
      float* to = sums.data + rows[i] * sums.stride;
      const float* from = out.data + i * out.stride;
      for (int j = 0; j < sums.cols; ++j) to[j] += shares[i] * from[j];
    }
  }
}

MatrixView HostExpertOps::RunExpert(MatrixView x, const FeedForwardWeights& expert,
                                    float gate_limit) {
  const MatrixView gate_up = gate_up_.Take(x.rows, expert.gate_up->rows());
  backend_->MatMul({.x = x, .w = expert.gate_up, .bias = expert.gate_up_bias, .out = gate_up});
  const MatrixView gated = gated_.Take(x.rows, gate_up.cols / 2);
  if (gate_limit > 0) {
    backend_->layer_ops()->ClampedGate(gate_up, gate_limit, gated);
  } else {
    backend_->layer_ops()->SwiGlu(gate_up, gated);
  }
  const MatrixView out = out_.Take(x.rows, expert.down->rows());
  backend_->MatMul({.x = gated, .w = expert.down, .bias = expert.down_bias, .out = out});
  return out;
}

}  // namespace talon
