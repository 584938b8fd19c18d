// A backend that leaves everything to another one, for those that change a part of it.
#ifndef TALON_COMPUTE_FORWARDING_BACKEND_H_
#define TALON_COMPUTE_FORWARDING_BACKEND_H_

#include <functional>
#include <memory>
#include <utility>

#include "compute/backend.h"

namespace talon {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  BackendInfo info() const override { return inner_->info(); }
  KvLayout BlockLayout(const KvShape& shape) const override { return inner_->BlockLayout(shape); }
  LayerOps* layer_ops() override { return inner_->layer_ops(); }
  ExpertOps* expert_ops() override { return inner_->expert_ops(); }
  KvOps* kv_ops() override { return inner_->kv_ops(); }
  DeviceClock* clock() override { return inner_->clock(); }
  const Clock& time() const override { return inner_->time(); }
  TokenOps* token_ops() override { return inner_->token_ops(); }
  Result<Buffer> Allocate(size_t bytes, Placement placement) override {
    return inner_->Allocate(bytes, placement);
  }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    inner_->CopyIn(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    inner_->CopyOut(host, device, bytes);
  }
  void Synchronize() override { inner_->Synchronize(); }
  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts, WeightFormat format,
                                             const WeightUse& use) override {
    return inner_->PackWeight(parts, format, use);
  }
  std::unique_ptr<Pass> NewPass(int query_heads) override { return inner_->NewPass(query_heads); }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    inner_->LoadPass(plan, shape, pass);
  }
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override {
    inner_->Record(pass, second, key, ops);
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
};

}  // namespace talon

#endif  // TALON_COMPUTE_FORWARDING_BACKEND_H_
