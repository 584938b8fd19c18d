// What backends on the host have in common: passes that carry their plan, and fused ops made of the
// plain ones, with the row between them in a scratch matrix.
#ifndef TALON_COMPUTE_HOST_BACKEND_H_
#define TALON_COMPUTE_HOST_BACKEND_H_

#include <cstdint>
#include <functional>

#include "compute/backend.h"
#include "compute/pass_plan.h"

namespace talon {

struct HostPass : Pass {
  PassPlan plan;
};

class HostBackend : public Backend {
 public:
  void Record(Pass* /*pass*/, const Pass* /*second*/, uint64_t /*key*/,
              const std::function<void()>& ops) override {
    ops();
  }
  void NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                  const float* bias, MatrixView out) override;
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void RotateAndStore(const Pass& pass, const QkvRows& rows, MatrixView angles, const KvView& kv,
                      int layer) override;
  void AttentionMatMul(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                       const Weight& w, const float* bias, MatrixView out) override;
  void GatherOutputs(const Pass& pass, MatrixView x, MatrixView out) override;
  void GatherFeatures(const Pass& pass, MatrixView x, MatrixView out) override;

 protected:
  static const PassPlan& PlanOf(const Pass& pass) {
    return static_cast<const HostPass&>(pass).plan;
  }

 private:
  // Scratch rows; the buffer grows to the largest wanted.
  MatrixView Take(Buffer* buffer, int rows, int cols);

  Buffer operand_;  // left sides of products
  Buffer gate_up_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_BACKEND_H_
