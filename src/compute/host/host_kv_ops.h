// KV cache ops that the backends on the host share.
#ifndef TALON_COMPUTE_HOST_HOST_KV_OPS_H_
#define TALON_COMPUTE_HOST_HOST_KV_OPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/kv_ops.h"

namespace talon {

class HostKvOps : public KvOps {
 public:
  void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                 int first) override;
  void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) override;
  std::span<const int32_t> ChosenColumns() override { return chosen_; }

 private:
  std::vector<int32_t> chosen_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_KV_OPS_H_
