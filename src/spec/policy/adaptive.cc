#include "spec/policy/adaptive.h"

#include <algorithm>
#include <numeric>

namespace talon {
namespace {

constexpr int kCalibrationSteps = 3;  // plain steps before the first draft
constexpr double kSlow = 0.05;        // weight of a new value in running means
constexpr double kVerySlow = 0.02;
constexpr double kFast = 0.2;
constexpr int kHopefulSteps = 8;  // imagined steps with the gain a new drafter is hoped to have

void Blend(double value, double weight, double* mean) { *mean += weight * (value - *mean); }

// Keeps the root and the first `keep` nodes of `order`.
void KeepFirst(const std::vector<int>& order, size_t keep, TokenTree* tree) {
  if (keep == order.size()) return;
  std::vector<bool> kept(tree->size(), false);
  kept[0] = true;
  for (size_t n = 0; n < keep; ++n) kept[order[n]] = true;
  *tree = SelectNodes(*tree, kept);
}

}  // namespace

bool AdaptivePolicy::LedgerAllows(const StepShape& shape) const {
  // One bad step must be affordable too, so a fresh engine may lose a little before it has earned.
  return ledger_ > -kLedgerShare * total_seconds_ - PlainSeconds(shape);
}

DraftBudget AdaptivePolicy::Budget(const StepShape& shape, const DraftBudget& limit) {
  if (plain_steps_ < kCalibrationSteps || !LedgerAllows(shape)) return {};
  DraftBudget budget = limit;
  budget.seconds_per_token = token_seconds_;
  // Lookups cost next to nothing: let them propose, Trim decides.
  if (IsCheap(shape) || gain_ >= kMinGain) {
    probe_interval_ = kFirstProbe;
    until_probe_ = kFirstProbe;
    return budget;
  }
  // Several steps in a row, because one says little.
  if (probes_left_ == 0 && until_probe_-- > 0) return {};
  if (probes_left_ == 0) {
    probes_left_ = kProbeSteps;
    until_probe_ = probe_interval_;
    probe_interval_ = std::min(probe_interval_ * 2, kLastProbe);
  }
  --probes_left_;
  return budget;
}

AdaptivePolicy::Ranking AdaptivePolicy::Rank(const TokenTree& tree) const {
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  Ranking rank{.order = std::vector<int>(tree.size() - 1), .path = {1.0}};
  for (int i = 1; i < tree.size(); ++i) {
    rank.path.push_back(rank.path[tree.parents[i]] *
                        calibration_.Estimate(depth[i], tree.probs[i]));
  }
  // A child never comes before its parent, because its estimate is below 1.
  std::iota(rank.order.begin(), rank.order.end(), 1);
  std::stable_sort(rank.order.begin(), rank.order.end(),
                   [&](int a, int b) { return rank.path[a] > rank.path[b]; });
  return rank;
}

void AdaptivePolicy::Trim(const StepShape& shape, TokenTree* tree) {
  if (tree->size() <= 1) return;
  const Ranking rank = Rank(*tree);
  double best_speed = kMinGain / VerifySeconds(shape, 1);
  double tokens = 1;
  size_t keep = 0;
  for (size_t n = 0; n < rank.order.size(); ++n) {
    tokens += rank.path[rank.order[n]];
    const double speed = tokens / VerifySeconds(shape, static_cast<double>(n) + 2);
    if (speed > best_speed) {
      best_speed = speed;
      keep = n + 1;
    }
  }
  KeepFirst(rank.order, keep, tree);
}

// The pass takes place anyway, so each draft is weighed by its own row. A token accepted here saves
// what it would cost otherwise: its share of a partial step, and a row of the next such pass.
void AdaptivePolicy::TrimSettling(const StepShape& shape, int trunk, TokenTree* tree) {
  constexpr double kRowsPerToken = 1.15;  // some provisional tokens are judged in vain
  if (tree->size() <= 1) return;
  const Ranking rank = Rank(*tree);
  size_t keep = 0;
  for (; keep < rank.order.size(); ++keep) {
    const double rows = trunk + 1 + static_cast<double>(keep);
    const double row = VerifySeconds(shape, rows + 1) - VerifySeconds(shape, rows);
    const double saved = rank.path[rank.order[keep]] * (token_seconds_ + kRowsPerToken * row);
    if (saved <= row) break;
  }
  KeepFirst(rank.order, keep, tree);
}

void AdaptivePolicy::ObserveTree(const TokenTree& tree, std::span<const int32_t> path) {
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  std::vector<bool> accepted(tree.size(), false);
  for (const int32_t node : path) accepted[node] = true;
  for (int i = 1; i < tree.size(); ++i) {
    if (accepted[tree.parents[i]]) calibration_.Record(depth[i], tree.probs[i], accepted[i]);
  }
}

void AdaptivePolicy::ObserveStep(const StepShape& shape, const StepCost& cost) {
  total_seconds_ += cost.total_seconds;
  const double plain = PlainSeconds(shape);
  if (cost.rows == shape.sequences) {
    ++plain_steps_;
    const double ratio = (cost.total_seconds - cost.draft_seconds) / curve_.Seconds(shape, 1);
    Blend(ratio, plain_steps_ <= kCalibrationSteps ? 1.0 / plain_steps_ : kSlow, &plain_scale_);
  }
  const double per_token = cost.total_seconds / std::max(cost.emitted, 1);
  Blend(per_token, token_seconds_ == 0 ? 1.0 : kSlow, &token_seconds_);
  if (!cost.drafted) return;
  // Rare slow proposals (a hiccup of the machine, a table that grows) are no reason to stop.
  const double draft_seconds =
      draft_cost_known_ ? std::min(cost.draft_seconds, 2 * draft_seconds_) : cost.draft_seconds;
  Blend(draft_seconds, draft_cost_known_ ? kFast : 1.0, &draft_seconds_);
  draft_cost_known_ = true;
  const double plain_equivalent = plain * cost.emitted / shape.sequences;
  // Nothing proposed at no cost says nothing about what proposals are worth.
  if (cost.rows > shape.sequences || !IsCheap(shape)) {
    const double weight = std::max(kVerySlow, 1.0 / (++gain_steps_ + kHopefulSteps));
    Blend(plain_equivalent / cost.total_seconds, weight, &gain_);
  }
  ledger_ = std::min(ledger_ + plain_equivalent - cost.total_seconds, 0.0);
}

}  // namespace talon
