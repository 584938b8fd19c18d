// The ops of a pass, in the order in which a layer runs them: they are recorded with it and read
// what changes from pass to pass in device memory. (Some also run alone.)
#include "base/check.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/cuda_backend_class.h"
#include "compute/cuda/kv/kv_ops.h"
#include "compute/cuda/runtime/few_rows.h"

namespace talon {

using cuda::BusyClock;
using cuda::CudaPass;
using cuda::CudaWeight;
using cuda::FewIndices;

// ---- Inputs ----

void CudaBackend::Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).rows);
  cuda::Embed(stream_, PlanOf(pass), table, dtype, out);
}

void CudaBackend::RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                             MatrixView angles) {
  TALON_CHECK(angles.rows == PlanOf(pass).rows && angles.cols == 2 * half);
  cuda::RopeAngles(stream_, PlanOf(pass), inv_freq, half, scale, angles);
}

// ---- Products ----

cuda::RowsOut CudaBackend::Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch) {
  const DType dtype = w.operand_dtype();
  const int padded = w.padded_cols();
  void* data = scratch->Get(static_cast<size_t>(rows) * padded * DTypeSize(dtype));
  return {data, dtype, padded, w.cols(), padded};
}

cuda::Operand CudaBackend::NormedOperand(MatrixView x, const float* norm, float epsilon,
                                         const CudaWeight& w) {
  TALON_CHECK(x.cols == w.cols());
  const cuda::RowsOut operand = Operand(w, x.rows, &operand_);
  cuda::RmsNorm(stream_, x, norm, epsilon, operand);
  return {operand.data, x.rows, operand.stride};
}

void CudaBackend::AddProduct(const cuda::Operand& x, const CudaWeight& w, const float* bias,
                             MatrixView out) {
  gemm_.Run({.x = x, .w = &w, .bias = bias, .out = out, .accumulate = true});
}

void CudaBackend::MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
                         bool accumulate) {
  const BusyClock::Batch batch(&clock_);
  const auto& weight = static_cast<const CudaWeight&>(w);
  TALON_CHECK(x.cols == weight.cols());
  const cuda::RowsOut operand = Operand(weight, x.rows, &operand_);
  cuda::Convert(stream_, x, operand);
  gemm_.Run({.x = {operand.data, x.rows, operand.stride},
             .w = &weight,
             .bias = bias,
             .out = out,
             .accumulate = accumulate});
}

void CudaBackend::NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                             const float* bias, MatrixView out) {
  const auto& weight = static_cast<const CudaWeight&>(w);
  const cuda::Operand operand = NormedOperand(x, norm, epsilon, weight);
  gemm_.Run({.x = operand, .w = &weight, .bias = bias, .out = out});
}

// ---- Q, K and V ----

void CudaBackend::ProjectQkv(const Pass& pass, const QkvProduct& product, const QkvRows& rows,
                             MatrixView angles, const KvView& kv, int layer) {
  const auto& weight = static_cast<const CudaWeight&>(*product.w);
  const bool aligned = product.out.stride % 4 == 0 && angles.stride % 4 == 0;
  if (rows.q_norm != nullptr || rows.k_norm != nullptr || !aligned ||
      !gemm_.StoresHeads(weight, product.x.rows, kv.shape.head_dim, angles.cols)) {
    return Backend::ProjectQkv(pass, product, rows, angles, kv, layer);
  }
  TALON_CHECK(product.x.rows == PlanOf(pass).rows && angles.rows == product.x.rows);
  gemm_.Run({.x = NormedOperand(product.x, product.norm, product.epsilon, weight),
             .w = &weight,
             .bias = product.bias,
             .out = product.out,
             .heads = {.places = PlanOf(pass).places,
                       .angles = angles.data,
                       .angle_stride = angles.stride,
                       .query_heads = rows.q.cols / kv.shape.head_dim,
                       .shape = kv.shape,
                       .layer = kv.layers[layer]}});
}

void CudaBackend::RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles,
                                 const KvView& kv, int layer) {
  TALON_CHECK(rows.k.rows == PlanOf(pass).rows && angles.rows == rows.k.rows);
  cuda::RotateAndStore(stream_, PlanOf(pass), rows, angles, kv.shape, kv.layers[layer]);
}

void CudaBackend::RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) {
  TALON_CHECK(x.cols % head_dim == 0);
  cuda::RmsNormHeads(stream_, x, head_dim, weight, epsilon);
}

void CudaBackend::Rope(MatrixView x, int head_dim, MatrixView angles) {
  TALON_CHECK(x.rows == angles.rows && x.cols % head_dim == 0 && angles.cols <= head_dim);
  cuda::Rope(stream_, x, head_dim, angles);
}

void CudaBackend::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                          int layer) {
  TALON_CHECK(k.rows == PlanOf(pass).rows && v.rows == k.rows);
  TALON_CHECK(k.cols == kv.shape.kv_heads * kv.shape.head_dim && v.cols == k.cols);
  cuda::StoreKv(stream_, PlanOf(pass), k, v, kv.shape, kv.layers[layer]);
}

// ---- Attention ----

void CudaBackend::Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                            float scale, MatrixView out) {
  TALON_CHECK(out.rows == q.rows);
  RunAttention(pass, q, kv, layer, scale, cuda::OutOf(out));
}

void CudaBackend::AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                                  float scale, const Weight& w, const float* bias, MatrixView out) {
  const auto& weight = static_cast<const CudaWeight&>(w);
  const cuda::RowsOut operand = Operand(weight, q.rows, &operand_);
  RunAttention(pass, q, kv, layer, scale, operand);
  AddProduct({operand.data, q.rows, operand.stride}, weight, bias, out);
}

void CudaBackend::RunAttention(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                               float scale, const cuda::RowsOut& out) {
  const auto& cuda_pass = static_cast<const CudaPass&>(pass);
  const KvShape& shape = kv.shape;
  TALON_CHECK(q.rows == cuda_pass.plan().rows && out.cols == q.cols);
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  const cuda::AttentionCall call{.plan = cuda_pass.plan(),
                                 .q = q,
                                 .out = out,
                                 .shape = shape,
                                 .layer = kv.layers[layer],
                                 .layer_index = layer,
                                 .scale = scale,
                                 .scratch = attention_.Get(0)};
  cuda::RunAttention(stream_, call);
}

// ---- Feed-forward and norms ----

void CudaBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const auto& gate_up = static_cast<const CudaWeight&>(*weights.gate_up);
  const auto& down = static_cast<const CudaWeight&>(*weights.down);
  const cuda::Operand normed = NormedOperand(x, norm, epsilon, gate_up);
  const cuda::RowsOut gated = Operand(down, x.rows, &gated_);
  if (!gemm_.RunSwiGlu(normed, gate_up, weights.gate_up_bias, gated)) {
    const int wide = gate_up.rows();
    const MatrixView both{gate_up_.GetAs<float>(static_cast<size_t>(x.rows) * wide), x.rows, wide,
                          wide};
    gemm_.Run({.x = normed, .w = &gate_up, .bias = weights.gate_up_bias, .out = both});
    cuda::SwiGlu(stream_, both, gated);
  }
  AddProduct({gated.data, x.rows, gated.stride}, down, weights.down_bias, x);
}

void CudaBackend::SwiGlu(MatrixView gate_up, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  cuda::SwiGlu(stream_, gate_up, cuda::OutOf(out));
}

void CudaBackend::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
  cuda::RmsNorm(stream_, x, weight, epsilon, cuda::OutOf(out));
}

// ---- Rows that leave the pass ----

void CudaBackend::GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).outputs && out.cols == x.cols);
  cuda::GatherRows(stream_, x, PlanOf(pass).output_rows, out);
}

void CudaBackend::GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).features && out.cols == x.cols);
  cuda::GatherRows(stream_, x, PlanOf(pass).feature_rows, out);
}

void CudaBackend::GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
  if (rows.empty()) return;
  if (rows.size() <= cuda::kFewRows) {
    cuda::GatherFewRows(stream_, x, FewIndices::Of(rows), out);
  } else {
    cuda::GatherRows(stream_, x, Upload(rows), out);
  }
}

}  // namespace talon
