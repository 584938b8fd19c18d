// A backend whose passes take a while after they were queued, as a device's do, for tests: the time
// is spent when something waits.
#ifndef TALON_ENGINE_STEP_LAGGING_BACKEND_H_
#define TALON_ENGINE_STEP_LAGGING_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "compute/backend.h"

namespace talon {

class LaggingBackend : public Backend {
 public:
  LaggingBackend(std::unique_ptr<Backend> inner, std::chrono::milliseconds lag)
      : inner_(std::move(inner)), lag_(lag) {}

  // Passes that nothing has waited for, and the most there ever were.
  int in_flight() const { return in_flight_; }
  int most_in_flight() const { return most_in_flight_; }

  void CopyOut(void* host, const void* device, size_t bytes) override {
    Synchronize();
    inner_->CopyOut(host, device, bytes);
  }
  TokenOps* token_ops() override {  // their results are read
    Synchronize();
    return inner_->token_ops();
  }
  void Synchronize() override { std::this_thread::sleep_for(lag_ * std::exchange(in_flight_, 0)); }
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override {
    inner_->Record(pass, second, key, ops);
    most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
  }

  // The rest is the other backend's.
  BackendInfo info() const override { return inner_->info(); }
  KvLayout BlockLayout(const KvShape& shape) const override { return inner_->BlockLayout(shape); }
  LayerOps* layer_ops() override { return inner_->layer_ops(); }
  ExpertOps* expert_ops() override { return inner_->expert_ops(); }
  KvOps* kv_ops() override { return inner_->kv_ops(); }
  DeviceClock* clock() override { return inner_->clock(); }
  Result<Buffer> Allocate(size_t bytes, Placement placement) override {
    return inner_->Allocate(bytes, placement);
  }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    inner_->CopyIn(device, host, bytes);
  }
  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts, WeightFormat format,
                                             const WeightUse& use) override {
    return inner_->PackWeight(parts, format, use);
  }
  std::unique_ptr<Pass> NewPass(int query_heads) override { return inner_->NewPass(query_heads); }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    inner_->LoadPass(plan, shape, pass);
  }
  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override {
    inner_->Embed(pass, table, dtype, out);
  }
  void MatMul(const MatMulArgs& args) override { inner_->MatMul(args); }
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override {
    inner_->FeedForward(x, norm, epsilon, weights);
  }
  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override {
    inner_->RopeAngles(pass, inv_freq, half, scale, angles);
  }
  void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                  MatrixView angles, const KvView& kv, int layer) override {
    inner_->ProjectQkv(pass, product, rows, angles, kv, layer);
  }
  void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                       const float* bias, MatrixView out) override {
    inner_->AttentionMatMul(pass, input, w, bias, out);
  }
  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override {
    inner_->GatherRows(x, rows, out);
  }
  void CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                std::span<const int32_t> to) override {
    inner_->CopyRows(x, from, out, to);
  }
  void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) override {
    inner_->GatherPassRows(pass, rows, x, out);
  }
  void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                     MatrixView whole) override {
    inner_->GatherColumns(ranks, part, bounds, whole);
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::chrono::milliseconds lag_;
  int in_flight_ = 0;
  int most_in_flight_ = 0;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_LAGGING_BACKEND_H_
