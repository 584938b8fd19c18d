// The CPU backend's KV cache ops: copies by memcpy, summaries and scores by SIMD kernels.
#ifndef TALON_COMPUTE_CPU_CPU_KV_OPS_H_
#define TALON_COMPUTE_CPU_CPU_KV_OPS_H_

#include <cstdint>
#include <span>

#include "base/threads.h"
#include "compute/cpu/attention/block_scores.h"
#include "compute/host/host_kv_ops.h"

namespace talon {

class CpuKvOps : public HostKvOps {
 public:
  explicit CpuKvOps(ThreadPool* pool) : pool_(pool) {}

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

 private:
  ThreadPool* pool_;
  ScoreScratch score_scratch_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_CPU_KV_OPS_H_
