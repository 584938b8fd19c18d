#include "spec/drafters/tree_growth.h"

#include "base/clock.h"

namespace talon {
namespace {

// Share of reached beam nodes that get a child accepted: what a level wins at most, about.
constexpr double kHitShare = 0.7;
constexpr double kSlow = 0.1;  // weight of a new timing

}  // namespace

bool LevelPrice::Pays(double mass) const {
  return seconds_per_token <= 0 || kHitShare * mass * seconds_per_token >= *level_seconds;
}

void LevelPrice::Observe(double seconds) const {
  *level_seconds += (*level_seconds == 0 ? 1.0 : kSlow) * (seconds - *level_seconds);
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
