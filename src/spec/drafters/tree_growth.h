// Grows the dynamic trees of a batch level by level, all sequences of a level in one pass.
#ifndef TALON_SPEC_DRAFTERS_TREE_GROWTH_H_
#define TALON_SPEC_DRAFTERS_TREE_GROWTH_H_

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "spec/drafters/dynamic_tree.h"
#include "spec/plan.h"
#include "spec/recent_times.h"
#include "spec/step_prices.h"

namespace talon {

struct GrowingTree {
  DynamicTree tree;
  PrefixView prefix;     // committed rows of the draft's own KV
  int position = 0;      // position of depth 1
  int staging_base = 0;  // its node i is staged at staging_base + i
  size_t owner = 0;      // the caller's index
  int slot = 0;          // where the drafter keeps what the tree grows from, if it has slots
  bool has_nan = false;  // a score was NaN: the tree is void
};

// Runs the beams of these trees in one pass; `best`: top-k successors of each beam node in order.
using RunLevel =
    std::function<Status(std::span<GrowingTree* const> level, std::vector<TopKEntry>* best)>;

// What levels took lately, kept by the drafter between steps.
struct LevelTimes {
  const Clock* clock = &SteadyClock::Get();
  RecentTimes seconds;
  int refused = 0;  // levels not run since one was timed
  int untimed = 0;  // trees grown without being waited for since then
};

// What another level may cost: it is not run if the beams' chance of being reached, in tokens,
// is worth less than its time and its rows. A few are run before any is refused, and one after many
// refusals: a price that is never paid would never be measured again.
struct LevelPrice {
  StepPrices prices;  // a token costs 0: levels are free
  LevelTimes* times;

  // `mass`: expected number of nodes to be expanded that lie on the target's path, of `trees`.
  bool Pays(double mass, int trees) const;
  // Where levels are not waited for: whether the next ones should be, to keep their time known.
  bool IsDue() const;
  void Observe(double seconds) const;
};

// How many levels to queue where none is waited for: a beam's mass is not known to the host then,
// and what earlier trees had there stands for it. A new one expects the most of all beams.
class LevelForecast {
 public:
  explicit LevelForecast(int max_levels) : mass_(max_levels, 1.0) {}

  // Cuts the trees, none of them started, to the levels that pay; how many these are at most.
  int CutTrees(std::span<GrowingTree> trees, const LevelPrice& price) const;
  // The beam that a tree had after `level` levels.
  void Observe(int level, double mass);

 private:
  std::vector<double> mass_;  // [levels], of a tree's beam, running mean
};

// REQUIRES: every tree was started.
Status GrowTrees(std::span<GrowingTree> trees, const LevelPrice& price, const RunLevel& run_level);

// Adds the rows of a tree's beam to the pass.
void AddBeam(const GrowingTree& growing, PassBuilder* builder);

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_TREE_GROWTH_H_
