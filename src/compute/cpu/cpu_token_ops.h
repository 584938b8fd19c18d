// The CPU backend's token ops. Tokens are drawn by the caller.
#ifndef TALON_COMPUTE_CPU_CPU_TOKEN_OPS_H_
#define TALON_COMPUTE_CPU_CPU_TOKEN_OPS_H_

#include <cstdint>
#include <span>

#include "base/threads.h"
#include "compute/host/host_token_ops.h"

namespace talon {

class CpuTokenOps : public HostTokenOps {
 public:
  CpuTokenOps(Backend* backend, ThreadPool* pool) : HostTokenOps(backend), pool_(pool) {}

  void Argmax(MatrixView x, std::span<int32_t> out) override;
  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override;

 private:
  ThreadPool* pool_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_CPU_TOKEN_OPS_H_
