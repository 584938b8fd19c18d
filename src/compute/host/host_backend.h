// The common part of the backends on the host: fused ops made of the plain ones, with the rows
// between them in scratch matrices, and beam search by plain loops.
#ifndef TALON_COMPUTE_HOST_HOST_BACKEND_H_
#define TALON_COMPUTE_HOST_HOST_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "compute/backend.h"
#include "compute/host/host_experts.h"
#include "compute/layer_ops.h"
#include "compute/ranks/segments.h"

namespace talon {

class HostBackend : public Backend, public LayerOps {
 public:
  DeviceClock* clock() override { return &clock_; }

  Result<Buffer> Allocate(size_t bytes) final;
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
  bool SumsInSegments() const override { return true; }
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void ExpertFeedForward(MatrixView x, const float* norm, float epsilon,
                         const ExpertsWeights& weights) override;
  int64_t experts_read() const override { return experts_read_; }
  void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                  MatrixView angles, const KvView& kv, int layer) override;
  void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                       const float* bias, MatrixView out) override;
  void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) override;

  // For tests: draft trees grow ahead of the host, as they do on devices.
  void GrowTreesAhead(bool ahead) { grows_ahead_ = ahead; }
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) override;

 protected:
  virtual Result<Buffer> AllocateMemory(size_t bytes) = 0;
  // out += x * w^T (+ bias), where every one of `ranks` has a part of the inputs; null: all here.
  void AddProduct(MatrixView x, const Weight& w, const float* bias, Ranks* ranks, MatrixView out);
  // Scratch rows for the left operand of a product, until the next call.
  MatrixView TakeOperand(int rows, int cols) { return Take(&operand_, rows, cols); }

 private:
  // One expert's outputs for `x`, in scratch rows.
  MatrixView RunExpert(MatrixView x, const FeedForwardWeights& expert, float gate_limit);
  // What the experts of segments, which begin and end at `bounds`, add to the rows, summed pairwise
  // in one of `scratch`, of which every level of the sum takes one.
  MatrixView SumExperts(const ExpertsWeights& weights, MatrixView x, std::span<const int> bounds,
                        std::span<Buffer> scratch);
  // Adds what the experts of a range make of x to `sums`, in ascending order.
  void AddExperts(const ExpertsWeights& weights, IndexRange experts, MatrixView x, MatrixView sums);
  // Scratch rows; the buffer grows to the largest request.
  MatrixView Take(Buffer* buffer, int rows, int cols);

  DeviceClock clock_;
  Buffer operand_;  // left operands of products
  Buffer gate_up_;
  Buffer normed_, router_logits_;  // sparse layers only
  Buffer expert_rows_, expert_out_;
  std::array<Buffer, 4> expert_sums_;
  Buffer summed_;  // products over several ranks
  ExpertRows expert_choice_;
  int64_t experts_read_ = 0;
  bool grows_ahead_ = false;
  size_t most_bytes_ = std::numeric_limits<size_t>::max();
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_BACKEND_H_
