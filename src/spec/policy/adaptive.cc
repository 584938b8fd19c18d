#include "spec/policy/adaptive.h"

#include <algorithm>
#include <numeric>

namespace talon {
namespace {

constexpr int kCalibrationSteps = 3;  // plain steps before the first draft
constexpr double kPriorTrees = 4;     // imagined, that went one level deeper with kPriorShare
constexpr double kPriorShare = 0.7;
constexpr double kSlow = 0.05;  // weight of a new value in running means

void Blend(double value, double weight, double* mean) { *mean += weight * (value - *mean); }

}  // namespace

bool AdaptivePolicy::LedgerAllows(const StepShape& shape) const {
  // One bad step must be affordable too, so a fresh engine may lose a little before it has earned.
  return ledger_ > -kLedgerShare * total_seconds_ - PlainSeconds(shape);
}

// The depth with the best expected speed by what was reached so far; 0 = plain decoding.
int AdaptivePolicy::BestDepth(const StepShape& shape, const DraftBudget& limit) const {
  const double plain = PlainSeconds(shape);
  double best_speed = kMinGain / plain;
  double tokens = 1;
  double reached = 1;
  int best = 0;
  for (int depth = 1; depth <= std::min(limit.max_depth, kMaxDepth); ++depth) {
    // A few imagined trees keep bad luck in the first steps from ending speculation.
    reached = (reached_[depth] * reached_weight_[depth] + kPriorTrees * kPriorShare * reached) /
              (reached_weight_[depth] + kPriorTrees);
    tokens += reached;
    const double nodes =
        limit.top_k > 1 ? 1 + (limit.max_nodes - 1.0) * depth / limit.max_depth : 1.0 + depth;
    const double seconds =
        VerifySeconds(shape, std::min<double>(nodes, limit.max_nodes)) + draft_per_level_ * depth;
    if (tokens / seconds > best_speed) {
      best_speed = tokens / seconds;
      best = depth;
    }
  }
  return best;
}

DraftBudget AdaptivePolicy::Budget(const StepShape& shape, const DraftBudget& limit) {
  if (plain_steps_ < kCalibrationSteps || !LedgerAllows(shape)) return {};
  // Lookups cost next to nothing: let them propose, Trim decides.
  if (draft_cost_known_ && draft_per_level_ * limit.max_depth < 0.01 * PlainSeconds(shape)) {
    return limit;
  }
  DraftBudget budget = limit;
  const int depth = BestDepth(shape, limit);
  if (depth > 0) {
    probe_interval_ = kFirstProbe;
    until_probe_ = 0;
    budget.max_depth = depth;
    if (limit.top_k == 1) budget.max_nodes = std::min(limit.max_nodes, depth + 1);
    return budget;
  }
  if (until_probe_-- > 0) return {};
  until_probe_ = probe_interval_;
  probe_interval_ = std::min(probe_interval_ * 2, kLastProbe);
  return budget;
}

void AdaptivePolicy::Trim(const StepShape& shape, TokenTree* tree) {
  if (tree->size() <= 1) return;
  const std::vector<int32_t> depth = TreeDepths(tree->parents);
  std::vector<double> path(tree->size(), 1.0);
  for (int i = 1; i < tree->size(); ++i) {
    path[i] = path[tree->parents[i]] * calibration_.Estimate(depth[i], tree->probs[i]);
  }
  // Best first; a child never comes before its parent, because its estimate is below 1.
  std::vector<int> order(tree->size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return path[a] > path[b]; });
  double best_speed = kMinGain / VerifySeconds(shape, 1);
  double tokens = 1;
  size_t keep = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    tokens += path[order[n]];
    const double speed = tokens / VerifySeconds(shape, static_cast<double>(n) + 2);
    if (speed > best_speed) {
      best_speed = speed;
      keep = n + 1;
    }
  }
  if (keep == order.size()) return;
  std::vector<bool> kept(tree->size(), false);
  kept[0] = true;
  for (size_t n = 0; n < keep; ++n) kept[order[n]] = true;
  *tree = SelectNodes(*tree, kept);
}

void AdaptivePolicy::ObserveTree(const TokenTree& tree, std::span<const int32_t> path) {
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  std::vector<bool> accepted(tree.size(), false);
  for (const int32_t node : path) accepted[node] = true;
  for (int i = 1; i < tree.size(); ++i) {
    if (accepted[tree.parents[i]]) calibration_.Record(depth[i], tree.probs[i], accepted[i]);
  }
  const int deepest = std::min<int>(depth.back(), kMaxDepth);
  for (int d = 1; d <= deepest; ++d) {
    const bool reached = static_cast<int>(path.size()) > d;
    reached_weight_[d] = std::min(reached_weight_[d] + 1, 1 / kSlow);
    Blend(reached ? 1.0 : 0.0, 1 / reached_weight_[d], &reached_[d]);
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
  if (!cost.drafted) return;
  const double per_level = cost.draft_seconds / std::max(cost.draft_depth, 1);
  Blend(per_level, draft_cost_known_ ? kSlow : 1.0, &draft_per_level_);
  draft_cost_known_ = true;
  const double plain_equivalent = plain * cost.emitted / shape.sequences;
  ledger_ = std::min(ledger_ + plain_equivalent - cost.total_seconds, 0.0);
}

}  // namespace talon
