#include "spec/drafters/tree_growth.h"

#include "base/clock.h"

namespace talon {
namespace {

// Share of reached beam nodes that get a child accepted: what a level wins at most, about.
constexpr double kHitShare = 0.7;
constexpr size_t kTrials = 3;     // levels to time before one is refused
constexpr int kMaxRefusals = 32;  // in a row

}  // namespace

bool LevelPrice::Pays(double mass) const {
  if (seconds_per_token <= 0 || times->seconds.size() < kTrials) return true;
  if (kHitShare * mass * seconds_per_token >= times->seconds.Minimum()) return true;
  return ++times->refused > kMaxRefusals;
}

void LevelPrice::Observe(double seconds) const {
  times->seconds.Add(seconds);
  times->refused = 0;
}

Status GrowTrees(std::span<GrowingTree> trees, const LevelPrice& price, const RunLevel& run_level) {
  std::vector<GrowingTree*> level;
  std::vector<TopKEntry> best;
  for (;;) {
    level.clear();
    double mass = 0;
    for (GrowingTree& growing : trees) {
      if (growing.has_nan || !growing.tree.wants_expansion()) continue;
      level.push_back(&growing);
      mass += growing.tree.beam_mass();
    }
    if (level.empty() || !price.Pays(mass)) return OkStatus();
    const Stopwatch watch;
    TALON_RETURN_IF_ERROR(run_level(level, &best));
    price.Observe(watch.Seconds());
    size_t next = 0;
    for (GrowingTree* growing : level) {
      const size_t count = growing->tree.beam().size() * growing->tree.top_k();
      growing->has_nan = !growing->tree.Expand(std::span(best).subspan(next, count));
      next += count;
    }
  }
}

void AddBeam(const GrowingTree& growing, PassBuilder* builder) {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
  for (const DynamicTree::Expanded& node : growing.tree.expanded()) {
    tokens.push_back(node.token);
    parents.push_back(node.parent);
  }
  builder->AddForest(growing.prefix, growing.position, tokens, parents, growing.tree.beam().front(),
                     growing.staging_base);
}

}  // namespace talon
