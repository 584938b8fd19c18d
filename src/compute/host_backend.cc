#include "compute/host_backend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "compute/host_beams.h"

namespace talon {
namespace {

HostBeamSearch& Of(BeamSearch* search) { return static_cast<HostBeamSearch&>(*search); }

}  // namespace

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
  const MatrixView normed = TakeOperand(x.rows, x.cols);
  RmsNorm(x, norm, epsilon, normed);
  MatMul(normed, w, bias, out, /*accumulate=*/false);
}

void HostBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const MatrixView gate_up = Take(&gate_up_, x.rows, weights.gate_up->rows());
  NormMatMul(x, norm, epsilon, *weights.gate_up, weights.gate_up_bias, gate_up);
  const MatrixView gated = TakeOperand(x.rows, gate_up.cols / 2);
  SwiGlu(gate_up, gated);
  MatMul(gated, *weights.down, weights.down_bias, x, /*accumulate=*/true);
}

void HostBackend::AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                                  float scale, const Weight& w, const float* bias, MatrixView out) {
  const MatrixView attended = TakeOperand(q.rows, q.cols);
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

void HostBackend::CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                            int first) {
  const KvShape& shape = from.shape;
  const int lists = shape.num_layers * shape.kv_heads;
  const int count = static_cast<int>(blocks.size()) / lists;
  TALON_CHECK(blocks.size() == static_cast<size_t>(lists) * count);
  TALON_CHECK(first + count <= to.shape.num_blocks);
  const size_t bytes = shape.TileElements() * DTypeSize(shape.dtype);
  const auto tile = [&](void* array, int block, int head) {
    return static_cast<uint8_t*>(array) +
           (static_cast<size_t>(block) * shape.kv_heads + head) * bytes;
  };
  for (int list = 0; list < lists; ++list) {
    const int head = list % shape.kv_heads;
    const KvLayer& source = from.layers[list / shape.kv_heads];
    const KvLayer& target = to.layers[list / shape.kv_heads];
    for (int i = 0; i < count; ++i) {
      const int32_t block = blocks[static_cast<size_t>(list) * count + i];
      std::memcpy(tile(target.k_blocks, first + i, head), tile(source.k_blocks, block, head),
                  bytes);
      std::memcpy(tile(target.v_blocks, first + i, head), tile(source.v_blocks, block, head),
                  bytes);
    }
  }
}

namespace {

void ChooseOfRow(const float* row, const ColumnChoice& choice, std::vector<int32_t>* out) {
  const auto value_of = [row](int32_t column) {
    return std::isnan(row[column]) ? -INFINITY : row[column];
  };
  const bool all_nan = std::all_of(row + choice.begin, row + choice.end,
                                   [](float value) { return std::isnan(value); });
  std::vector<int32_t> columns(choice.end - choice.begin);
  std::iota(columns.begin(), columns.end(), choice.begin);
  std::nth_element(columns.begin(), columns.begin() + choice.count - 1, columns.end(),
                   [&](int32_t a, int32_t b) {
                     const float value_a = value_of(a), value_b = value_of(b);
                     return value_a != value_b ? value_a > value_b : a < b;
                   });
  std::sort(columns.begin(), columns.begin() + choice.count);
  if (all_nan) columns[0] = -1;
  out->insert(out->end(), columns.begin(), columns.begin() + choice.count);
}

}  // namespace

void HostBackend::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  chosen_.clear();
  for (const ColumnChoice& choice : choices) {
    TALON_CHECK(0 <= choice.begin && choice.end <= x.cols && 0 <= choice.count &&
                choice.count <= choice.end - choice.begin);
    if (choice.count == 0) continue;
    for (int r = 0; r < x.rows; ++r) ChooseOfRow(x.data + r * x.stride, choice, &chosen_);
  }
}

// ---- Draft trees ----

Result<std::unique_ptr<BeamSearch>> HostBackend::NewBeamSearch(const BeamLimits& limits,
                                                               std::span<const int32_t> token_ids) {
  if (!grows_ahead_) return std::unique_ptr<BeamSearch>();
  return std::unique_ptr<BeamSearch>(std::make_unique<HostBeamSearch>(
      limits, token_ids,
      [this](MatrixView x, int k, std::span<TopKEntry> out) { TopK(x, k, out); }));
}

void HostBackend::RankRoots(BeamSearch* search, std::span<const int32_t> slots, MatrixView logits,
                            MatrixView outputs, MatrixView kept) {
  Of(search).RankRoots(slots, logits, outputs, kept);
}

void HostBackend::StartBeams(BeamSearch* search, std::span<const BeamRoot> roots) {
  Of(search).Start(roots);
}

void HostBackend::LoadBeams(BeamSearch* search, Pass* pass, MatrixView kept, MatrixView inputs) {
  const auto& loaded = static_cast<const HostPass&>(*pass);
  PassPlan plan = loaded.plan;
  Of(search).LoadBeam(kept, inputs, &plan);
  LoadPass(plan, KvShape(loaded.shape), pass);
}

void HostBackend::ExpandBeams(BeamSearch* search, MatrixView logits, MatrixView outputs,
                              MatrixView kept) {
  Of(search).Expand(logits, outputs, kept);
}

void HostBackend::LoadTrees(BeamSearch* search, Pass* pass, std::span<const TreePlace> places) {
  const auto& loaded = static_cast<const HostPass&>(*pass);
  PassPlan plan = loaded.plan;
  for (const TreePlace& place : places) Of(search).LoadTree(place, &plan);
  LoadPass(plan, KvShape(loaded.shape), pass);
}

std::span<const TopKEntry> HostBackend::ReadBeams(BeamSearch* search) {
  return Of(search).rankings();
}

}  // namespace talon
