// The KV cache outside of attention: commits, copies, and the choice of blocks that are read.
#include "base/check.h"
#include "compute/cuda/cuda_backend_class.h"
#include "compute/cuda/kv/block_scores.h"
#include "compute/cuda/kv/kv_ops.h"
#include "compute/cuda/runtime/few_rows.h"

namespace talon {

using cuda::BusyClock;
using cuda::CudaPass;
using cuda::FewIndices;

// ---- Rows and blocks ----

void CudaBackend::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                             std::span<const int32_t> slots, int num_layers) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  if (rows.empty() || num_layers == 0) return;
  const KvLayer* layers = Layers(kv);
  const auto count = static_cast<int>(rows.size());
  if (rows.size() <= cuda::kFewRows) {
    return cuda::CommitFewRows(stream_, kv.shape, layers, num_layers, FewIndices::Of(rows),
                               FewIndices::Of(slots), count);
  }
  const int32_t* indices = Upload(rows, slots);
  cuda::CommitRows(stream_, kv.shape, layers, num_layers, indices, indices + count, count);
}

void CudaBackend::CopySlots(const KvView& kv, std::span<const int32_t> from,
                            std::span<const int32_t> to) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = Upload(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopySlots(stream_, kv.shape, layers, indices, indices + count, count);
}

void CudaBackend::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(tokens <= kv.shape.block_size && from != to);
  if (tokens > 0) cuda::CopyBlock(stream_, kv.shape, Layers(kv), from, to, tokens);
}

void CudaBackend::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                             std::span<const int32_t> to) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = Upload(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopyStaged(stream_, kv.shape, layers, indices, indices + count, count);
}

void CudaBackend::CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                            int first) {
  copier_.Copy({Layers(from), from.shape}, blocks, {Layers(to), to.shape}, first, &uploads_);
}

// ---- Which blocks are read ----

void CudaBackend::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  const BusyClock::Batch batch(&clock_);
  TALON_CHECK(kv.shape.key_summaries);
  if (blocks.empty()) return;
  const KvLayer* layers = Layers(kv);
  cuda::SummariseBlocks(stream_, kv.shape, layers, Upload(blocks), static_cast<int>(blocks.size()));
}

void CudaBackend::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                              MatrixView out) {
  const auto& cuda_pass = static_cast<const CudaPass&>(pass);
  TALON_CHECK(kv.shape.key_summaries && q.rows == cuda_pass.plan().rows);
  TALON_CHECK(out.rows == kv.shape.kv_heads && out.cols >= cuda_pass.scored_blocks());
  cuda::ScoreBlocks(stream_, {.plan = cuda_pass.plan(),
                              .q = q,
                              .shape = kv.shape,
                              .layer = kv.layers[layer],
                              .layer_index = layer,
                              .out = out});
}

void CudaBackend::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  const BusyClock::Batch batch(&clock_);
  chooser_.Choose(x, choices, &uploads_);
  waited_ = false;
}

std::span<const int32_t> CudaBackend::ChosenColumns() {
  if (!waited_) Synchronize();
  return chooser_.chosen();
}

}  // namespace talon
