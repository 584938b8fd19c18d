// The common part of the backends on the host: fused ops made of the plain ones, with the rows
// between them in scratch matrices.
#ifndef TALON_COMPUTE_HOST_HOST_BACKEND_H_
#define TALON_COMPUTE_HOST_HOST_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "compute/backend.h"
#include "compute/host/host_expert_ops.h"
#include "compute/host/host_scratch.h"
#include "compute/ranks/ranks.h"

namespace talon {

class HostBackend : public Backend, public LayerOps {
 public:
  LayerOps* layer_ops() override { return this; }
  ExpertOps* expert_ops() override { return &expert_ops_; }
  DeviceClock* clock() override { return &clock_; }

  Result<Buffer> Allocate(size_t bytes, Placement placement) final;
  // For tests: larger allocations fail as they do where there is no memory.
  void LimitAllocations(size_t most_bytes) { most_bytes_ = most_bytes; }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void Synchronize() override {}

  void Record(Pass* /*pass*/, const Pass* /*second*/, uint64_t /*key*/,
              const std::function<void()>& ops) override {
    ops();
  }
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                  MatrixView angles, const KvView& kv, int layer) override;
  void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                       const float* bias, MatrixView out) override;
  void CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                std::span<const int32_t> to) override;
  void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) override;
  void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                     MatrixView whole) override {
    ranks->GatherColumns(part, bounds, whole);
  }

 protected:
  virtual Result<Buffer> AllocateMemory(size_t bytes) = 0;
  // out += x * w^T (+ bias), where every one of `ranks` has a part of the inputs; null: all here.
  void AddProduct(MatrixView x, const Weight& w, const float* bias, Ranks* ranks, MatrixView out);
  // Scratch rows for the left operand of a product, until the next call.
  MatrixView TakeOperand(int rows, int cols) { return operand_.Take(rows, cols); }

 private:
  DeviceClock clock_;
  HostExpertOps expert_ops_{this};
  HostScratch operand_{this};  // left operands of products
  HostScratch gate_up_{this};
  HostScratch summed_{this};  // products over several ranks
  size_t most_bytes_ = std::numeric_limits<size_t>::max();
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_BACKEND_H_
