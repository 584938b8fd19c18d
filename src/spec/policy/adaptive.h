// The adaptive policy: as many nodes as pay, down to none.
//
// Expected speed of a step with n drafts = (1 + sum of their path probabilities) / seconds(n + 1).
// Path probabilities come from an online calibration of the drafter's scores, seconds from the
// verify curve. Before drafting, the same formula with running acceptance by depth and the
// drafter's measured cost per level decides how deep to draft, if at all. A drafter that does not
// pay is asked again at growing intervals.
//
// A ledger bounds the damage of wrong estimates: the time lost in steps that drafted, against plain
// decoding of the same tokens, may not exceed 1.5 % of all time spent.
#ifndef TALON_SPEC_POLICY_ADAPTIVE_H_
#define TALON_SPEC_POLICY_ADAPTIVE_H_

#include <array>
#include <vector>

#include "spec/policy/calibration.h"
#include "spec/policy/policy.h"
#include "spec/policy/verify_curve.h"

namespace talon {

class AdaptivePolicy : public Policy {
 public:
  explicit AdaptivePolicy(VerifyCurve curve) : curve_(std::move(curve)) {}

  DraftBudget Budget(const StepShape& shape, const DraftBudget& limit) override;
  void Trim(const StepShape& shape, TokenTree* tree) override;
  void ObserveTree(const TokenTree& tree, std::span<const int32_t> path) override;
  void ObserveStep(const StepShape& shape, const StepCost& cost) override;

  const VerifyCurve& curve() const { return curve_; }

 private:
  static constexpr int kMaxDepth = 64;
  static constexpr double kLedgerShare = 0.015;
  static constexpr double kMinGain = 1.02;  // expected speed-up below this is noise
  static constexpr int kFirstProbe = 8;
  static constexpr int kLastProbe = 128;

  double PlainSeconds(const StepShape& shape) const {
    return curve_.Seconds(shape, 1) * plain_scale_;
  }
  double VerifySeconds(const StepShape& shape, double nodes) const {
    return curve_.Seconds(shape, nodes) * plain_scale_;
  }
  int BestDepth(const StepShape& shape, const DraftBudget& limit) const;
  bool LedgerAllows(const StepShape& shape) const;

  VerifyCurve curve_;
  Calibration calibration_;
  // Share of trees whose accepted path reached this depth, of those that had it: running means.
  std::array<double, kMaxDepth + 1> reached_{};
  std::array<double, kMaxDepth + 1> reached_weight_{};
  double draft_per_level_ = 0;  // seconds, running mean
  bool draft_cost_known_ = false;
  double plain_scale_ = 1;  // measured plain steps against the curve
  int plain_steps_ = 0;
  int probe_interval_ = kFirstProbe;
  int until_probe_ = 0;
  double ledger_ = 0;  // seconds gained by drafting steps, negative = lost
  double total_seconds_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_ADAPTIVE_H_
