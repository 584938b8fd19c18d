// The CUDA backend's KV cache ops: index arrays and layer tables go to device memory, then kernels
// run on the backend's stream.
#ifndef TALON_COMPUTE_CUDA_KV_CUDA_KV_OPS_H_
#define TALON_COMPUTE_CUDA_KV_CUDA_KV_OPS_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "compute/cuda/kv/tile_copy.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/tokens/choose_columns.h"
#include "compute/kv_ops.h"

namespace talon::cuda {

class CudaKvOps : public KvOps {
 public:
  explicit CudaKvOps(Context* context) : context_(context) {}

  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override;
  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override;
  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override;
  void CopyBlock(const KvView& kv, int from, int to, int tokens) override;
  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override;
  void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                 int first) override;
  void JoinCopies() override { copier_.Join(); }
  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override;
  bool ScoresByAttention() const override { return false; }
  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override;
  void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) override;
  std::span<const int32_t> ChosenColumns() override;

 private:
  struct DeviceLayers {
    std::vector<KvLayer> host;
    Buffer device;
  };
  const Stream& stream() const { return context_->stream(); }
  // The cache's layers in device memory.
  const KvLayer* Layers(const KvView& kv);

  Context* context_;
  ColumnChooser chooser_{&context_->stream()};
  TileCopier copier_{&context_->stream()};
  std::map<const KvLayer*, DeviceLayers> layers_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_KV_CUDA_KV_OPS_H_
