#include "compute/cuda/kv/cuda_kv_ops.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/contain.h"
#include "compute/cuda/kv/block_scores.h"
#include "compute/cuda/kv/kv_ops.h"
#include "compute/cuda/runtime/device_pass.h"
#include "compute/cuda/runtime/few_rows.h"

namespace talon::cuda {

const KvLayer* CudaKvOps::Layers(const KvView& kv) {
  DeviceLayers& known = layers_[kv.layers.data()];
  const size_t bytes = kv.layers.size_bytes();
  if (known.host.size() != kv.layers.size() ||
      std::memcmp(known.host.data(), kv.layers.data(), bytes) != 0) {
    known.device = MemoryOrThrow(AllocateDevice(stream(), bytes));
    known.host.assign(kv.layers.begin(), kv.layers.end());
    context_->Copy(known.device.data(), known.host.data(), bytes);
  }
  return static_cast<const KvLayer*>(known.device.data());
}

// ---- Rows and blocks ----

void CudaKvOps::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) {
  TALON_CHECK(k.rows == PlanOf(pass).rows && v.rows == k.rows);
  TALON_CHECK(k.cols == kv.shape.kv_heads * kv.shape.head_dim && v.cols == k.cols);
  cuda::StoreKv(stream(), PlanOf(pass), k, v, kv.shape, kv.layers[layer]);
  pass.ReportStored(layer);
}

void CudaKvOps::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                           std::span<const int32_t> slots, int num_layers) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  if (rows.empty() || num_layers == 0) return;
  const KvLayer* layers = Layers(kv);
  const auto count = static_cast<int>(rows.size());
  if (rows.size() <= kFewRows) {
    return CommitFewRows(stream(), kv.shape, layers, num_layers, FewIndices::Of(rows),
                         FewIndices::Of(slots), count);
  }
  const int32_t* indices = context_->UploadIndices(rows, slots);
  cuda::CommitRows(stream(), kv.shape, layers, num_layers, indices, indices + count, count);
}

void CudaKvOps::CopySlots(const KvView& kv, std::span<const int32_t> from,
                          std::span<const int32_t> to) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = context_->UploadIndices(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopySlots(stream(), kv.shape, layers, indices, indices + count, count);
}

void CudaKvOps::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(tokens <= kv.shape.block_size && from != to);
  if (tokens > 0) cuda::CopyBlock(stream(), kv.shape, Layers(kv), from, to, tokens);
}

void CudaKvOps::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                           std::span<const int32_t> to) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(from.size() == to.size());
  if (from.empty()) return;
  const KvLayer* layers = Layers(kv);
  const int32_t* indices = context_->UploadIndices(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopyStaged(stream(), kv.shape, layers, indices, indices + count, count);
}

void CudaKvOps::CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                          int first) {
  copier_.Copy({Layers(from), from.shape}, blocks, {Layers(to), to.shape}, first,
               context_->uploads());
}

// ---- The choice of blocks ----

void CudaKvOps::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  const CudaClock::Batch batch(context_->clock());
  TALON_CHECK(kv.shape.key_summaries);
  if (blocks.empty()) return;
  const KvLayer* layers = Layers(kv);
  cuda::SummariseBlocks(stream(), kv.shape, layers, context_->UploadIndices(blocks),
                        static_cast<int>(blocks.size()));
}

void CudaKvOps::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                            MatrixView out) {
  TALON_CHECK(kv.shape.key_summaries && q.rows == PlanOf(pass).rows);
  TALON_CHECK(out.rows == kv.shape.kv_heads && out.cols >= AsDevicePass(pass).scored_blocks());
  cuda::ScoreBlocks(stream(), {.plan = PlanOf(pass),
                               .q = q,
                               .shape = kv.shape,
                               .layer = kv.layers[layer],
                               .layer_index = layer,
                               .out = out});
}

void CudaKvOps::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  const CudaClock::Batch batch(context_->clock());
  chooser_.Choose(x, choices, context_->uploads());
  context_->ExpectResults();
}

std::span<const int32_t> CudaKvOps::ChosenColumns() {
  if (!context_->arrived()) context_->Synchronize();
  return chooser_.chosen();
}

}  // namespace talon::cuda
