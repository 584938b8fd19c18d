// The adaptive policy: as many nodes as pay, down to none.
//
// Expected speed of a step with n drafts = (1 + sum of their path probabilities) / seconds(n + 1).
// Path probabilities come from an online calibration of the drafter's scores, seconds from the
// verify curve. What drafting costs is weighed by the drafter itself, level by level, against what
// a token costs now (DraftBudget::seconds_per_token). A drafter whose steps have been no faster
// than plain ones is asked again at growing intervals.
//
// A ledger bounds the damage of wrong estimates: the time lost in steps that drafted, against plain
// decoding of the same tokens, may not exceed 1.5 % of all time spent.
#ifndef TALON_SPEC_POLICY_ADAPTIVE_H_
#define TALON_SPEC_POLICY_ADAPTIVE_H_

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
  void TrimSettling(const StepShape& shape, int trunk, TokenTree* tree) override;
  double PassSeconds(const StepShape& shape, double rows) const override {
    return VerifySeconds(shape, rows);
  }
  void ObserveTree(const TokenTree& tree, std::span<const int32_t> path) override;
  void ObserveStep(const StepShape& shape, const StepCost& cost) override;

  const VerifyCurve& curve() const { return curve_; }

 private:
  static constexpr double kLedgerShare = 0.015;
  static constexpr double kMinGain = 1.02;  // expected speed-up below this is noise
  static constexpr double kHope = 1.3;      // a new drafter is tried a few times
  static constexpr int kFirstProbe = 16;
  static constexpr int kProbeSteps = 6;
  static constexpr int kLastProbe = 256;

  double PlainSeconds(const StepShape& shape) const {
    return curve_.Seconds(shape, 1) * plain_scale_;
  }
  double VerifySeconds(const StepShape& shape, double nodes) const {
    return curve_.Seconds(shape, nodes) * plain_scale_;
  }
  // Drafts of a tree, most likely first, and the probability of the path to each node.
  struct Ranking {
    std::vector<int> order;
    std::vector<double> path;  // by node
  };
  Ranking Rank(const TokenTree& tree) const;
  bool LedgerAllows(const StepShape& shape) const;
  bool IsCheap(const StepShape& shape) const {
    return draft_cost_known_ && draft_seconds_ < 0.02 * PlainSeconds(shape);
  }

  VerifyCurve curve_;
  Calibration calibration_;
  double draft_seconds_ = 0;  // of a proposal, running mean
  bool draft_cost_known_ = false;
  double gain_ = kHope;       // speed of drafting steps against plain ones, running mean
  double token_seconds_ = 0;  // what a token costs, running mean
  double plain_scale_ = 1;    // measured plain steps against the curve
  int plain_steps_ = 0;
  int probe_interval_ = kFirstProbe;
  int until_probe_ = 0;
  int probes_left_ = 0;
  int gain_steps_ = 0;
  double ledger_ = 0;  // seconds gained by drafting steps, negative = lost
  double total_seconds_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_ADAPTIVE_H_
