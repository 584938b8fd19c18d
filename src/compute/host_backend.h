// What backends on the host have in common: passes that carry their plan, and fused ops made of the
// plain ones, with the row between them in a scratch matrix.
#ifndef TALON_COMPUTE_HOST_BACKEND_H_
#define TALON_COMPUTE_HOST_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/pass_plan.h"

namespace talon {

struct HostPass : Pass {
  PassPlan plan;
  KvShape shape;
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

  void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                 int first) override;
  void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) override;
  std::span<const int32_t> ChosenColumns() override { return chosen_; }

  // For tests: draft trees grow ahead of the host, as they do on devices.
  void GrowTreesAhead(bool ahead) { grows_ahead_ = ahead; }
  Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                    std::span<const int32_t> token_ids) override;
  void RankRoots(BeamSearch* search, std::span<const int32_t> slots, MatrixView logits,
                 MatrixView outputs, MatrixView kept) override;
  void StartBeams(BeamSearch* search, std::span<const BeamRoot> roots) override;
  void LoadBeams(BeamSearch* search, Pass* pass, MatrixView kept, MatrixView inputs) override;
  void ExpandBeams(BeamSearch* search, MatrixView logits, MatrixView outputs,
                   MatrixView kept) override;
  void LoadTrees(BeamSearch* search, Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> ReadBeams(BeamSearch* search) override;

 protected:
  static const PassPlan& PlanOf(const Pass& pass) {
    return static_cast<const HostPass&>(pass).plan;
  }
  // Scratch rows for the left side of a product, until the next call.
  MatrixView TakeOperand(int rows, int cols) { return Take(&operand_, rows, cols); }

 private:
  // Scratch rows; the buffer grows to the largest wanted.
  MatrixView Take(Buffer* buffer, int rows, int cols);

  Buffer operand_;  // left sides of products
  Buffer gate_up_;
  std::vector<int32_t> chosen_;
  bool grows_ahead_ = false;
};

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_BACKEND_H_
