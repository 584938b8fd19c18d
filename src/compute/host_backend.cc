#include "compute/host_backend.h"

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace talon {

MatrixView HostBackend::Take(Buffer* buffer, int rows, int cols) {
  const size_t bytes = static_cast<size_t>(rows) * cols * sizeof(float);
  if (buffer->bytes() < bytes) {
    auto grown = Allocate(bytes);
    TALON_CHECK(grown.ok(), "{}", grown.status().message());
    *buffer = std::move(grown).value();
  }
  return {static_cast<float*>(buffer->data()), rows, cols, cols};
}

void HostBackend::NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                             const float* bias, MatrixView out) {
  const MatrixView normed = Take(&operand_, x.rows, x.cols);
  RmsNorm(x, norm, epsilon, normed);
  MatMul(normed, w, bias, out, /*accumulate=*/false);
}

void HostBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const MatrixView gate_up = Take(&gate_up_, x.rows, weights.gate_up->rows());
  NormMatMul(x, norm, epsilon, *weights.gate_up, weights.gate_up_bias, gate_up);
  const MatrixView gated = Take(&operand_, x.rows, gate_up.cols / 2);
  SwiGlu(gate_up, gated);
  MatMul(gated, *weights.down, weights.down_bias, x, /*accumulate=*/true);
}

void HostBackend::AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                                  float scale, const Weight& w, const float* bias, MatrixView out) {
  const MatrixView attended = Take(&operand_, q.rows, q.cols);
  Attention(pass, q, kv, layer, scale, attended);
  MatMul(attended, w, bias, out, /*accumulate=*/true);
}

void HostBackend::RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles,
                                 const KvView& kv, int layer) {
  const int head_dim = kv.shape.head_dim;
  if (rows.q_norm != nullptr) RmsNormHeads(rows.q, head_dim, rows.q_norm, rows.epsilon);
  if (rows.k_norm != nullptr) RmsNormHeads(rows.k, head_dim, rows.k_norm, rows.epsilon);
  Rope(rows.q, head_dim, angles);
  Rope(rows.k, head_dim, angles);
  StoreKv(pass, rows.k, rows.v, kv, layer);
}

void HostBackend::GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) {
  GatherRows(x, PlanOf(pass).output_rows, out);
}

void HostBackend::GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) {
  GatherRows(x, PlanOf(pass).feature_rows, out);
}

}  // namespace talon
