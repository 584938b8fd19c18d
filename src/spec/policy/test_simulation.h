// The adaptive policy against a simulated machine and drafter, for tests.
#ifndef TALON_SPEC_POLICY_TEST_SIMULATION_H_
#define TALON_SPEC_POLICY_TEST_SIMULATION_H_

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "spec/drafters/tree_growth.h"
#include "spec/policy/adaptive.h"

namespace talon {

// 1 ms for one row, and a tenth of it for each more; attention adds with the context.
inline VerifyCurve CheapRows() {
  return VerifyCurve({{1, 1e-3, 1e-7}, {2, 1.1e-3, 1e-7}, {4, 1.3e-3, 1e-7}, {64, 7.3e-3, 1e-7}});
}

struct Simulation {
  double acceptance = 0.5;   // acceptance of each draft, given its parent
  int text_changes_at = 0;   // before this step no draft is accepted
  double draft_seconds = 0;  // per level
  VerifyCurve curve = CheapRows();
  double wrong_curve = 1;  // the machine's extra rows cost this much more than the curve says
  int steps = 2000;
  int seed = 1;
  // How many times slower than by itself the machine is in a step.
  std::function<double(int step)> slowdown = [](int) { return 1.0; };
  std::function<void(int step)> on_draft = [](int) {};
  std::function<void(bool drafts, bool follows)> on_step = [](bool, bool) {};

  struct Outcome {
    double time = 0;   // against plain decoding of the same tokens, both undisturbed
    double nodes = 0;  // per step
  };

  Outcome Run() const {
    AdaptivePolicy policy(curve);
    const StepShape shape{.sequences = 1, .context = 100};
    std::mt19937 random(seed);
    LevelTimes level_times;
    double seconds = 0, tokens = 0, nodes = 0;
    for (int step = 0; step < steps; ++step) {
      const double slow = slowdown(step);
      policy.BeginStep(shape);
      const DraftBudget budget = policy.Budget(shape, {.max_nodes = 9, .max_depth = 8});
      const bool drafted = budget.max_nodes > 1;
      if (drafted) on_draft(step);
      on_step(drafted, policy.Follows());
      TokenTree tree = drafted ? Draft(budget, slow, &level_times) : TokenTree(0);
      const double drafting = draft_seconds * (tree.size() - 1);
      if (drafted) policy.Trim(shape, &tree);
      const double good = step < text_changes_at ? 0.0 : acceptance;
      const std::vector<int32_t> path = Verify(tree, good, &random);
      const double plain = curve.Seconds(shape, 1);
      const double verify = plain + (curve.Seconds(shape, tree.size()) - plain) * wrong_curve;
      if (tree.size() > 1) policy.ObserveTree(tree, path, /*ahead=*/false);
      policy.ObserveStep(shape, {.rows = tree.size(),
                                 .emitted = static_cast<int>(path.size()),
                                 .drafted = drafted,
                                 .draft_seconds = slow * drafting,
                                 .total_seconds = slow * (verify + drafting)});
      seconds += verify + drafting;
      tokens += static_cast<double>(path.size());
      nodes += tree.size();
    }
    return {seconds / (tokens * curve.Seconds(shape, 1)), nodes / steps};
  }

 private:
  // A chain, as drafters make it: another level while it is worth its cost.
  TokenTree Draft(const DraftBudget& budget, double slow, LevelTimes* level_times) const {
    const LevelPrice price{.prices = budget.prices, .times = level_times};
    TokenTree tree(0);
    double reach = 1;
    for (int n = 0; n < std::min(budget.max_depth, budget.max_nodes - 1); ++n) {
      if (n > 0 && !price.Pays(reach, 1)) break;
      if (n > 0) price.Observe(slow * draft_seconds);
      tree.Add(n, n, static_cast<float>(acceptance));
      reach *= acceptance;
    }
    return tree;
  }

  static std::vector<int32_t> Verify(const TokenTree& chain, double good, std::mt19937* random) {
    std::vector<int32_t> path = {0};
    while (static_cast<int>(path.size()) < chain.size() &&
           std::bernoulli_distribution(good)(*random)) {
      path.push_back(static_cast<int32_t>(path.size()));
    }
    return path;
  }
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_TEST_SIMULATION_H_
