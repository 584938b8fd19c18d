#include "spec/drafters/tree_growth.h"

namespace talon {
namespace {

// Share of reached beam nodes that get a child accepted: what a level wins at most, about.
constexpr double kHitShare = 0.7;
constexpr size_t kTrials = 3;        // levels to time before one is refused
constexpr int kMaxRefusals = 32;     // in a row
constexpr int kMaxUntimed = 128;     // in a row
constexpr double kMassWeight = 0.1;  // weight of a new beam in the running mean

}  // namespace

// A level adds about a row to each tree.
bool LevelPrice::Pays(double mass, int trees) const {
  if (prices.token <= 0 || times->seconds.size() < kTrials) return true;
  const double worth = kHitShare * mass * prices.token - trees * prices.row;
  if (worth >= times->seconds.Minimum()) return true;
  return ++times->refused > kMaxRefusals;
}

bool LevelPrice::IsDue() const {
  if (prices.token <= 0) return false;
  return times->seconds.size() < kTrials || times->refused > kMaxRefusals ||
         ++times->untimed > kMaxUntimed;
}

void LevelPrice::Observe(double seconds) const {
  times->seconds.Add(seconds);
  times->refused = 0;
  times->untimed = 0;
}

int LevelForecast::CutTrees(std::span<GrowingTree> trees, const LevelPrice& price) const {
  int levels = 1;
  for (;; ++levels) {
    double mass = 0;
    int wanted = 0;
    for (const GrowingTree& growing : trees) {
      if (growing.tree.steps() <= levels) continue;
      ++wanted;
      mass += mass_[levels - 1];
    }
    if (wanted == 0 || !price.Pays(mass, wanted)) break;
  }
  for (GrowingTree& growing : trees) growing.tree.LimitSteps(levels);
  return levels;
}

void LevelForecast::Observe(int level, double mass) {
  double& mean = mass_[level - 1];
  mean += kMassWeight * (mass - mean);
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
    if (level.empty() || !price.Pays(mass, static_cast<int>(level.size()))) return OkStatus();
    const Stopwatch watch(*price.times->clock);
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
