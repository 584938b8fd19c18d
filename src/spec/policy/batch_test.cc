// The adaptive policy in batches on a simulated GPU, whose rows cost little up to a number that one
// sequence does not reach: it must be about as good as the better of always and never.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "compute/test_device.h"
#include "spec/policy/adaptive.h"

namespace talon {
namespace {

// An 8B model on a card, about.
VerifyCurve Card() {
  return VerifyCurve({{1, 4.0e-3, 0},
                      {16, 4.2e-3, 0},
                      {64, 4.8e-3, 0},
                      {128, 5.4e-3, 0},
                      {256, 7.0e-3, 0},
                      {512, 12.5e-3, 0},
                      {1024, 24e-3, 0}});
}

// A curve by which further rows cost this many times as much.
VerifyCurve WrongCard(double factor) {
  std::vector<VerifyCurve::Point> points = Card().points();
  const double one = points[0].base;
  for (VerifyCurve::Point& point : points) point.base = one + factor * (point.base - one);
  return VerifyCurve(points);
}

struct BatchCase {
  int batch = 1;
  double acceptance = 0.5;  // acceptance of each draft, given its parent
  bool ahead = false;       // the device grows the trees, the host does not see them
  double draft_seconds = 0;
  int nodes = 8;
  VerifyCurve card = Card();
  int slow_runs = 0;    // runs of each number of rows that take twice as long, the first ones
  int wrong_steps = 0;  // first steps of drafting, none of whose drafts is accepted
};

// Tokens per second of 1000 steps.
double BatchSpeed(const BatchCase& run, Policy* policy, bool drafts) {
  const StepShape shape{.sequences = run.batch};
  std::mt19937 random(5);
  double seconds = 0, tokens = 0;
  std::map<int, int> runs;  // by rows
  int draft_steps = 0;
  for (int step = 0; step < 1000; ++step) {
    policy->BeginStep(shape);
    StepCost cost{.ahead = run.ahead};
    DraftBudget budget;
    if (drafts) budget = policy->Budget(shape, {.max_nodes = run.nodes, .max_depth = run.nodes});
    cost.drafted = budget.max_nodes > 1;
    if (cost.drafted && run.ahead) budget.max_nodes = policy->NodesAhead(shape, run.nodes);
    for (int i = 0; i < run.batch; ++i) {
      TokenTree tree(0);
      for (int n = 1; n < budget.max_nodes; ++n) {
        tree.Add(n - 1, n, static_cast<float>(run.acceptance));
      }
      if (cost.drafted && !run.ahead) policy->Trim(shape, &tree);
      std::vector<int32_t> path = {0};
      while (draft_steps >= run.wrong_steps && static_cast<int>(path.size()) < tree.size() &&
             std::bernoulli_distribution(run.acceptance)(random)) {
        path.push_back(static_cast<int32_t>(path.size()));
      }
      if (tree.size() > 1) policy->ObserveTree(tree, path, run.ahead);
      cost.rows += tree.size();
      cost.emitted += static_cast<int>(path.size());
    }
    const double drafting = cost.drafted ? run.draft_seconds : 0;
    cost.draft_seconds = run.ahead ? 1e-5 : drafting;  // queueing alone
    cost.total_seconds =
        drafting + run.card.Seconds(shape, static_cast<double>(cost.rows) / run.batch);
    if (cost.drafted && runs[cost.rows]++ < run.slow_runs) cost.total_seconds *= 2;
    draft_steps += cost.drafted ? 1 : 0;
    policy->ObserveStep(shape, cost);
    seconds += cost.total_seconds;
    tokens += cost.emitted;
  }
  return tokens / seconds;
}

// Under a sanitizer, which slows trees down most, one batch size.
std::vector<int> Batches() { return kSanitized ? std::vector{16} : std::vector{1, 4, 16, 48, 64}; }

void ExpectNearTheBest(BatchCase run, const VerifyCurve& known) {
  for (const int batch : Batches()) {
    for (const double acceptance : {0.0, 0.3, 0.6, 0.8, 0.95}) {
      run.batch = batch;
      run.acceptance = acceptance;
      FixedPolicy fixed;
      AdaptivePolicy adaptive(known);
      const double best = std::max(BatchSpeed(run, &fixed, false), BatchSpeed(run, &fixed, true));
      EXPECT_GT(BatchSpeed(run, &adaptive, true), 0.97 * best)
          << "batch " << batch << ", acceptance " << acceptance;
    }
  }
}

TEST(PolicyInBatches, Lookups) { ExpectNearTheBest({.draft_seconds = 2e-5, .nodes = 12}, Card()); }

// Half of the gain in batches was trimmed away where the curve made too much of their rows.
TEST(PolicyInBatches, RowsThatCostLessThanTheCurveSays) {
  ExpectNearTheBest({.draft_seconds = 2e-5, .nodes = 12}, WrongCard(2));
  ExpectNearTheBest({.draft_seconds = 9e-4}, WrongCard(2));
}

TEST(PolicyInBatches, TreesThatTheHostDoesNotSee) {
  ExpectNearTheBest({.ahead = true, .draft_seconds = 9e-4}, Card());
}

// A small model on a card: drafting takes as long as a pass, and the first runs of each shape are
// not captured yet. Its first trees happen to gain nothing.
TEST(PolicyInBatches, SmallModelWithASlowStart) {
  const VerifyCurve card({{1, 0.3e-3, 0}, {64, 0.5e-3, 0}, {256, 0.7e-3, 0}, {1024, 1.6e-3, 0}});
  ExpectNearTheBest(
      {.ahead = true, .draft_seconds = 4e-4, .card = card, .slow_runs = 3, .wrong_steps = 1}, card);
}

// Drafting takes longer than the pass itself.
TEST(PolicyInBatches, DearDraftsOfASmallModel) {
  const VerifyCurve card({{1, 0.3e-3, 0}, {64, 0.74e-3, 0}, {256, 1.2e-3, 0}, {1024, 3e-3, 0}});
  ExpectNearTheBest({.draft_seconds = 1e-3, .card = card}, card);
}

TEST(PolicyInBatches, ModelDraftsThatAreWaitedFor) {
  ExpectNearTheBest({.draft_seconds = 9e-4}, Card());
}

}  // namespace
}  // namespace talon
