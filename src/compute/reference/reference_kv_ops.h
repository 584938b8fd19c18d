// KV cache ops of the reference backend: one vector at a time.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_KV_OPS_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_KV_OPS_H_

#include <cstdint>
#include <span>

#include "compute/host/host_kv_ops.h"

namespace talon {

class ReferenceKvOps : public HostKvOps {
 public:
  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override;
  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override;
  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override;
  void CopyBlock(const KvView& kv, int from, int to, int tokens) override;
  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override;
  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override;
  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override;
};

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_KV_OPS_H_
