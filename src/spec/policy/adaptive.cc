#include "spec/policy/adaptive.h"

#include <algorithm>
#include <numeric>

namespace talon {
namespace {

constexpr int kCalibrationSteps = 2;    // plain steps before the first draft, and now and then
constexpr double kAffordable = 1.1;     // loss of a fresh engine, in plain steps
constexpr double kUnnoticed = 0.003;    // the same in seconds, where that is more
constexpr double kRecheckShare = 0.01;  // share of the time, given away to time plain steps again
constexpr double kSlow = 0.05;          // weight of a new value in running means
constexpr double kVerySlow = 0.02;
constexpr double kFast = 0.2;
constexpr int kPriorSteps = 8;    // weight of kPriorGain, in steps
constexpr int kTryLargest = 64;   // steps
constexpr double kVisible = 0.1;  // rows that cost less, in plain steps, are lost in noise

void Blend(double value, double weight, double* mean) { *mean += weight * (value - *mean); }

// Trees of 2 to 3 nodes have size 0, those of 4 to 7 size 1, ..
size_t SizeIndex(int nodes) { return std::bit_width(static_cast<unsigned>(nodes)) - 2; }

}  // namespace

double AdaptivePolicy::StepsInDebt(const StepShape& shape) const {
  // A fresh engine may lose a little before it has gained: early estimates are noisy.
  const Regime& now = Of(shape);
  const double step = curve_.Seconds(shape, 1);
  const double affordable = std::max(kAffordable * step, kUnnoticed / now.plain_scale);
  return (Loss(shape) - affordable) / (kLedgerShare * step);
}

double AdaptivePolicy::StepsLost(const StepShape& shape) const {
  return std::max(Loss(shape) / curve_.Seconds(shape, 1), 0.0);
}

void AdaptivePolicy::BeginStep(const StepShape& shape) {
  Regime& now = Of(shape);
  drafts_now_ = DraftsNow(shape);
  follows_ = drafts_now_ || !Sleeps(shape);
  followed_steps_ = follows_ ? std::min(followed_steps_ + 1, kWarmUp) : 0;
  tries_rows_ = drafts_now_ && now.unkept >= now.most_unkept;
  if (!tries_rows_) return;
  now.unkept = 0;
  now.most_unkept = std::min(2 * now.most_unkept, kLastProbe);
}

DraftBudget AdaptivePolicy::Budget(const StepShape& shape, const DraftBudget& limit) {
  if (!drafts_now_) return {};
  DraftBudget budget = limit;
  budget.prices = {.token = Of(shape).token_seconds, .row = RowSeconds(shape, limit.max_nodes)};
  return budget;
}

bool AdaptivePolicy::DraftsNow(const StepShape& shape) {
  Regime& now = Of(shape);
  allows_lookups_ = false;
  // Each plain step gives away what drafting gains.
  const double given_away = kCalibrationSteps * (1 - 1 / now.gain);
  if (now.draft_steps >= std::max<double>(now.recheck_interval, given_away / kRecheckShare)) {
    now.draft_steps = 0;
    now.plain_steps = 0;
    now.recheck_interval = std::min(now.recheck_interval * 2, kLastRecheck);
  }
  if (now.plain_steps < kCalibrationSteps || !Affords(shape)) return false;
  // Lookups cost next to nothing: let them propose, Trim decides.
  if (IsCheap(shape) || now.gain >= kMinGain) {
    if (followed_steps_ < kWarmUp) return false;
    now.probe_interval = kFirstProbe;
    now.until_probe = kFirstProbe;
    return true;
  }
  // Several steps in a row, because one says little.
  if (now.probes_left == 0 && now.until_probe-- > 0) {
    allows_lookups_ = now.lookup_gain >= kMinGain;
    return false;
  }
  if (followed_steps_ < kWarmUp) return false;
  if (now.probes_left == 0) {
    now.probes_left = kProbeSteps;
    now.lookup_gain = kPriorGain;
    now.lookup_steps = 0;
    now.until_probe = now.probe_interval;
    const int last = now.gain < kVeryLowGain ? 4 * kLastProbe : kLastProbe;
    now.probe_interval = std::min(now.probe_interval * 2, last);
  }
  --now.probes_left;
  return true;
}

bool AdaptivePolicy::Sleeps(const StepShape& shape) const {
  const Regime& now = Of(shape);
  if (IsCheap(shape) || now.gain >= kMinGain) return false;
  const int until_probe = now.probes_left == 0 ? now.until_probe : 0;
  const int least = follows_ ? 2 * kWarmUp : kWarmUp;  // a nap of less is not worth it
  return std::max(StepsInDebt(shape), 0.0) + until_probe > least;
}

AdaptivePolicy::Ranking AdaptivePolicy::Rank(const TokenTree& tree) const {
  Ranking rank{
      .order = std::vector<int>(tree.size() - 1), .path = {1.0}, .depth = TreeDepths(tree.parents)};
  for (int i = 1; i < tree.size(); ++i) {
    rank.path.push_back(rank.path[tree.parents[i]] *
                        calibration_.Estimate(rank.depth[i], tree.probs[i]));
  }
  // A child never comes before its parent, because its estimate is below 1.
  std::iota(rank.order.begin(), rank.order.end(), 1);
  std::stable_sort(rank.order.begin(), rank.order.end(),
                   [&](int a, int b) { return rank.path[a] > rank.path[b]; });
  return rank;
}

// The best of those that are dropped comes a little nearer to being tried.
void AdaptivePolicy::KeepFirst(const Ranking& rank, size_t keep, TokenTree* tree) {
  if (keep == rank.order.size()) return;
  const int refused = rank.order[keep];
  calibration_.Forget(rank.depth[refused], tree->probs[refused]);
  std::vector<bool> kept(tree->size(), false);
  kept[0] = true;
  for (size_t n = 0; n < keep; ++n) kept[rank.order[n]] = true;
  *tree = SelectNodes(*tree, kept);
}

// A few sizes only: a device captures a pass for each number of rows. The largest is tried again
// now and then, at first often, or its worth would never be known: the first trees say little.
int AdaptivePolicy::NodesAhead(const StepShape& shape, int most) {
  Regime& now = Of(shape);
  now.nodes_ahead = most;
  const auto step = static_cast<unsigned>(++now.steps_ahead);
  if (step % kTryLargest == 0 || (step > 1 && std::has_single_bit(step))) return most;
  const std::vector<double> tokens = sizes_.Tokens(most);
  double best_speed = 0;
  for (int nodes = most; nodes >= 2; nodes /= 2) {
    const double speed = tokens[nodes - 1] / SecondsAhead(shape, nodes);
    if (speed <= best_speed) continue;
    best_speed = speed;
    now.nodes_ahead = nodes;
  }
  return now.nodes_ahead;
}

// A size that was not tried yet drafts as long as the next larger one that was.
double AdaptivePolicy::SecondsAhead(const StepShape& shape, int nodes) const {
  const Regime& now = Of(shape);
  const size_t size = SizeIndex(nodes);
  for (size_t known = size; known < kTreeSizes; ++known) {
    const RecentTimes& times = now.times_ahead[known];
    if (times.empty()) continue;
    const double seconds = times.Median() * now.plain_scale;
    if (known == size) return seconds;
    return VerifySeconds(shape, nodes) + std::max(seconds - VerifySeconds(shape, 2 << known), 0.0);
  }
  return VerifySeconds(shape, nodes);
}

void AdaptivePolicy::Trim(const StepShape& shape, TokenTree* tree) {
  if (tree->size() <= 1) return;
  const Ranking rank = Rank(*tree);
  const double drafting = Of(shape).draft_seconds;  // is spent, whatever is kept
  double best_speed = kMinGain / (drafting + VerifySeconds(shape, 1));
  double tokens = 1;
  size_t keep = 0;
  for (size_t n = 0; n < rank.order.size(); ++n) {
    tokens += rank.path[rank.order[n]];
    const double speed = tokens / (drafting + VerifySeconds(shape, static_cast<double>(n) + 2));
    if (speed > best_speed) {
      best_speed = speed;
      keep = n + 1;
    }
  }
  KeepFirst(rank, keep, tree);
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
    const double saved =
        rank.path[rank.order[keep]] * (Of(shape).token_seconds + kRowsPerToken * row);
    if (saved <= row) break;
  }
  KeepFirst(rank, keep, tree);
}

void AdaptivePolicy::ObserveTree(const TokenTree& tree, std::span<const int32_t> path, bool ahead) {
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  std::vector<bool> accepted(tree.size(), false);
  for (const int32_t node : path) accepted[node] = true;
  for (int i = 1; i < tree.size(); ++i) {
    if (accepted[tree.parents[i]]) calibration_.Record(depth[i], tree.probs[i], accepted[i]);
  }
  if (ahead) sizes_.Observe(tree, path);
}

double AdaptivePolicy::CappedSeconds(const StepShape& shape, const StepCost& cost) const {
  const Regime& now = Of(shape);
  const RecentTimes& ratios = cost.drafted ? now.draft_ratios : now.plain_ratios;
  const double usual = ratios.empty() ? now.plain_scale : ratios.Median();
  return std::min(cost.total_seconds,
                  RecentTimes::kOutlierFactor * usual * CurveSeconds(shape, cost));
}

void AdaptivePolicy::ObserveStep(const StepShape& shape, const StepCost& cost) {
  Regime& now = Of(shape);
  const double seconds = CappedSeconds(shape, cost);
  const double pass_ratio = (cost.total_seconds - cost.draft_seconds) / curve_.Seconds(shape, 1);
  if (cost.rows == shape.sequences) {
    if (cost.drafted) ++now.unkept;
    ++now.plain_steps;
    now.draft_steps = 0;
    now.plain_ratios.Add(pass_ratio);
    now.plain_scale = now.plain_ratios.Median();
    now.tree_ratios = {};
  } else {
    now.unkept = 0;
    now.tree_ratios.Add(pass_ratio);
    ObserveRows(shape, cost);
    // More rows never cost less: if they seem to, the plain steps were disturbed.
    if (static_cast<int>(now.tree_ratios.size()) >= kCalibrationSteps) {
      now.plain_scale = std::min(now.plain_scale, now.tree_ratios.Median());
    }
  }
  now.total_by_curve += cost.total_seconds / now.plain_scale;
  const double per_token = seconds / std::max(cost.emitted, 1);
  Blend(per_token, now.token_seconds == 0 ? 1.0 : kSlow, &now.token_seconds);
  if (cost.drafted) ObserveDrafts(shape, cost, seconds);
  const double most = kMostGained * curve_.Seconds(shape, 1);
  if (Balance(now) >= most) now.ledger = {.plain_by_curve = most};
}

void AdaptivePolicy::Charge(const StepShape& shape, double seconds, double plain_steps) {
  Regime& now = Of(shape);
  now.ledger.seconds += seconds;
  now.ledger.by_curve += seconds / now.plain_scale;
  now.ledger.plain_by_curve += curve_.Seconds(shape, 1) * plain_steps;
}

// The curve is measured with one sequence: rows of a batch may cost less, which is seen here. That
// they cost more is seen in what drafting gains. Where drafting was not waited for, the pass has
// its time, too.
void AdaptivePolicy::ObserveRows(const StepShape& shape, const StepCost& cost) {
  Regime& now = Of(shape);
  const double one = curve_.Seconds(shape, 1);
  const double by_curve = CurveSeconds(shape, cost) - one;
  if (cost.ahead || now.plain_ratios.empty() || by_curve < kVisible * one) return;
  const double pass = (cost.total_seconds - cost.draft_seconds) / now.plain_scale;
  const double weight = std::max(kSlow, 1.0 / (++now.row_steps + 1));
  Blend(std::clamp((pass - one) / by_curve, kLeastRowScale, 1.0), weight, &now.row_scale);
}

// `seconds`: the step's time as CappedSeconds has it.
void AdaptivePolicy::ObserveDrafts(const StepShape& shape, const StepCost& cost, double seconds) {
  Regime& now = Of(shape);
  const double plain_steps = static_cast<double>(cost.emitted) / shape.sequences;
  const double by_curve = curve_.Seconds(shape, 1) * plain_steps;
  Charge(shape, seconds, plain_steps);
  if (cost.lookups_only) {
    const double weight = std::max(kVerySlow, 1.0 / (++now.lookup_steps + kPriorSteps));
    Blend(by_curve * now.plain_scale / seconds, weight, &now.lookup_gain);
    return;
  }
  now.ahead = cost.ahead;
  if (cost.ahead && cost.rows == now.nodes_ahead * shape.sequences) {
    now.times_ahead[SizeIndex(now.nodes_ahead)].Add(cost.total_seconds / now.plain_scale);
  }
  now.draft_ratios.Add(cost.total_seconds / CurveSeconds(shape, cost));
  // Rare slow proposals (other work on the machine, a table that grows) must not end drafting.
  const double draft_seconds = now.draft_cost_known
                                   ? std::min(cost.draft_seconds, 2 * now.draft_seconds)
                                   : cost.draft_seconds;
  Blend(draft_seconds, now.draft_cost_known ? kFast : 1.0, &now.draft_seconds);
  now.draft_cost_known = true;
  // An empty proposal at no cost carries no information about the worth of proposals.
  if (cost.rows > shape.sequences || !IsCheap(shape)) {
    const double weight = std::max(kVerySlow, 1.0 / (++now.gain_steps + kPriorSteps));
    const double usual = now.draft_ratios.Median() * CurveSeconds(shape, cost);
    Blend(by_curve * now.plain_scale / usual, weight, &now.gain);
  }
  if (cost.rows > shape.sequences) ++now.draft_steps;
}

}  // namespace talon
