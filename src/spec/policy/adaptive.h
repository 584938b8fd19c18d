// The adaptive policy: as many nodes as pay, down to none.
//
// Expected speed of a step with n drafts = (1 + sum of their path probabilities) / seconds(n + 1).
// Path probabilities come from an online calibration of the drafter's scores, seconds from the
// verify curve, corrected by what the rows of such batches were seen to cost. Trees that a device
// grows and verifies before the host knows them cannot be trimmed: for them one of a few sizes is
// chosen beforehand, by what trees of that size gained (size_worth.h) and what steps with them
// took. A curve by which no draft is ever worth its rows may have been measured on a disturbed
// machine: now and then a tree is kept as if rows were cheap, to see what they cost. What drafting
// costs is weighed by the drafter itself, level by level, against what a token
// costs now (DraftBudget::prices). A drafter whose steps have been no faster than plain
// ones is asked again at growing intervals; until then only lookups beside it, which cost next to
// nothing, as long as steps with them are faster than plain ones.
//
// What steps cost and gain is kept by the size of the batch, and apart for partial passes: a
// machine that has time to spare for one sequence has none for thirty-two, and drafts that are
// worth a row over a short view may not be worth one over a long prefix. What drafts are worth
// (calibration) does not depend on it.
//
// Even a drafter that is not asked costs something as long as it is told of what the target
// computes. One that proved slow is left alone until shortly before it is asked again.
//
// A ledger bounds the damage of wrong estimates: the time lost in steps that drafted, against plain
// decoding of the same tokens, may not exceed 1 % of all time spent, at any size of the batch,
// but for a little that a fresh engine may lose or that was gained lately.
//
// Times are disturbed by what else the machine does. So drafting and plain steps are compared by
// medians of the last few, a step much slower than those before it costs the ledger no more than
// twice what they took, and plain steps are timed again now and then. The ledger is reckoned with
// what they take now or took then, whichever was more: a machine that became slower or faster for
// all steps is not held against drafting.
#ifndef TALON_SPEC_POLICY_ADAPTIVE_H_
#define TALON_SPEC_POLICY_ADAPTIVE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "spec/policy/calibration.h"
#include "spec/policy/policy.h"
#include "spec/policy/size_worth.h"
#include "spec/policy/verify_curve.h"
#include "spec/recent_times.h"

namespace talon {

class AdaptivePolicy : public Policy {
 public:
  explicit AdaptivePolicy(VerifyCurve curve) : curve_(std::move(curve)) {}

  void BeginStep(const StepShape& shape) override;
  DraftBudget Budget(const StepShape& shape, const DraftBudget& limit) override;
  bool Follows() const override { return follows_; }
  bool AllowsLookups() const override { return allows_lookups_; }
  int NodesAhead(const StepShape& shape, int most) override;
  void Trim(const StepShape& shape, TokenTree* tree) override;
  void TrimSettling(const StepShape& shape, int trunk, TokenTree* tree) override;
  double PassSeconds(const StepShape& shape, double rows) const override {
    return curve_.Seconds(shape, rows);
  }
  void ObserveTree(const TokenTree& tree, std::span<const int32_t> path, bool ahead) override;
  void ObserveStep(const StepShape& shape, const StepCost& cost) override;
  void Charge(const StepShape& shape, double seconds, double plain_steps) override;
  double StepsLost(const StepShape& shape) const override;
  // Whether drafting that may lose time can be afforded now.
  bool Affords(const StepShape& shape) const { return StepsInDebt(shape) < 0; }

  const VerifyCurve& curve() const { return curve_; }

 private:
  static constexpr double kLedgerShare = 0.01;
  static constexpr double kMostGained = 4;   // plain steps of earlier gains that may be lost again
  static constexpr double kMinGain = 1.02;   // expected speed-up below this is noise
  static constexpr double kPriorGain = 1.3;  // assumed of a new drafter, so that it is tried
  static constexpr int kFirstProbe = 16;
  static constexpr int kProbeSteps = 6;
  static constexpr int kLastProbe = 256;
  static constexpr int kFirstUnkept = 8;
  static constexpr int kWarmUp = 32;        // steps that a drafter follows before it is asked again
  static constexpr int kFirstRecheck = 16;  // drafting steps before plain ones are timed again
  static constexpr int kLastRecheck = 256;
  static constexpr double kLeastRowScale = 0.2;
  static constexpr double kVeryLowGain = 0.85;  // below it a drafter is asked more rarely still

  static constexpr int kBatchSizes = 11;  // 1, 2, up to 4, 8, .. 1024
  static constexpr int kTreeSizes = 10;   // from 2, 4, .. 1024 nodes on

  // Steps that drafted, since they had last gained kMostGained in all. Times by the curve are those
  // of the machine divided by plain_scale, so that they mean the same when it becomes slower or
  // faster.
  struct Ledger {
    double seconds = 0;         // time of the machine
    double by_curve = 0;        // the same, by the scale of each step's time
    double plain_by_curve = 0;  // for the same tokens
  };
  // What is known of steps with about this many sequences, of one kind of passes.
  struct Regime {
    double draft_seconds = 0;  // a proposal takes, running mean
    bool draft_cost_known = false;
    double gain = kPriorGain;         // speed of drafting steps against plain ones, running mean
    double lookup_gain = kPriorGain;  // the same with lookups alone, since the last probe
    int lookup_steps = 0;
    double token_seconds = 0;  // what a token costs, running mean
    double plain_scale = 1;    // measured plain steps against the curve
    RecentTimes plain_ratios;  // the last plain steps, in the curve's seconds for one row
    RecentTimes tree_ratios;   // the last passes over trees since a plain step, the same
    double row_scale = 1;  // cost of a pass's rows but the first against the curve, running mean
    int row_steps = 0;     // steps that it is known from
    int unkept = 0;        // drafting steps in a row that kept no draft, so that no row was timed
    int most_unkept = kFirstUnkept;
    bool ahead = false;  // drafting was not waited for, so its cost is not known
    int steps_ahead = 0;
    int nodes_ahead = 0;  // nodes of a tree, as chosen last
    // Steps with trees of 2 to 3, 4 to 7, .. nodes, in the curve's seconds.
    std::array<RecentTimes, kTreeSizes> times_ahead;
    RecentTimes draft_ratios;  // the last drafting steps, in the curve's seconds for their rows
    int plain_steps = 0;       // since drafting paused to measure them
    int draft_steps = 0;       // since plain ones were measured
    int recheck_interval = kFirstRecheck;
    int probe_interval = kFirstProbe;
    int until_probe = 0;
    int probes_left = 0;
    int gain_steps = 0;
    Ledger ledger;
    double total_by_curve = 0;  // sum over all steps
  };
  static size_t IndexOf(const StepShape& shape) {
    const auto others = static_cast<unsigned>(std::max(shape.sequences, 1) - 1);
    const auto size = std::min<size_t>(std::bit_width(others), kBatchSizes - 1);
    return shape.partial ? kBatchSizes + size : size;
  }
  Regime& Of(const StepShape& shape) { return regimes_[IndexOf(shape)]; }
  const Regime& Of(const StepShape& shape) const { return regimes_[IndexOf(shape)]; }

  double PlainSeconds(const StepShape& shape) const { return VerifySeconds(shape, 1); }
  double VerifySeconds(const StepShape& shape, double nodes) const {
    const Regime& now = Of(shape);
    const double one = curve_.Seconds(shape, 1);
    const double scale = tries_rows_ ? kLeastRowScale : now.row_scale;
    return (one + (curve_.Seconds(shape, nodes) - one) * scale) * now.plain_scale;
  }
  // A row of trees of up to so many nodes, on average.
  double RowSeconds(const StepShape& shape, int nodes) const {
    const int rows = std::max(nodes - 1, 1) * shape.sequences;
    return (VerifySeconds(shape, std::max(nodes, 2)) - PlainSeconds(shape)) / rows;
  }
  // A step with trees of so many nodes that the host does not see, drafting included.
  double SecondsAhead(const StepShape& shape, int nodes) const;
  // Drafts of a tree, most likely first, and the probability of the path to each node.
  struct Ranking {
    std::vector<int> order;
    std::vector<double> path;    // by node
    std::vector<int32_t> depth;  // by node
  };
  Ranking Rank(const TokenTree& tree) const;
  // Keeps the root and the `keep` most likely drafts.
  void KeepFirst(const Ranking& rank, size_t keep, TokenTree* tree);
  // Seconds by the curve that drafting has gained; negative: lost.
  static double Balance(const Regime& regime) {
    const Ledger& ledger = regime.ledger;
    return ledger.plain_by_curve - std::min(ledger.seconds / regime.plain_scale, ledger.by_curve);
  }
  bool IsCheap(const StepShape& shape) const {
    const Regime& regime = Of(shape);
    return regime.draft_cost_known && !regime.ahead &&
           regime.draft_seconds < 0.02 * PlainSeconds(shape);
  }
  bool DraftsNow(const StepShape& shape);
  // Seconds by the curve that drafting has lost beyond its share of all time.
  double Loss(const StepShape& shape) const {
    const Regime& now = Of(shape);
    return -Balance(now) - kLedgerShare * now.total_by_curve;
  }
  // Plain steps until the ledger has room again; negative: it has.
  double StepsInDebt(const StepShape& shape) const;
  // Whether drafting has proved slow and is not to be tried for so long that following the target
  // would cost more than it is worth.
  bool Sleeps(const StepShape& shape) const;
  // The time of the step's rows by the curve alone.
  double CurveSeconds(const StepShape& shape, const StepCost& cost) const {
    return curve_.Seconds(shape, static_cast<double>(cost.rows) / shape.sequences);
  }
  // The time of a step, at most kOutlierFactor times the usual one.
  double CappedSeconds(const StepShape& shape, const StepCost& cost) const;
  void ObserveRows(const StepShape& shape, const StepCost& cost);
  void ObserveDrafts(const StepShape& shape, const StepCost& cost, double seconds);

  VerifyCurve curve_;
  Calibration calibration_;
  SizeWorth sizes_;
  std::array<Regime, 2 * kBatchSizes> regimes_;  // those of full passes, then those of partial ones
  // In the step that began last:
  bool drafts_now_ = false;
  bool tries_rows_ = false;  // as if rows were cheap, to learn what they cost
  bool allows_lookups_ = false;
  bool follows_ = true;
  int followed_steps_ = kWarmUp;  // in a row, until now; at most kWarmUp
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_ADAPTIVE_H_
