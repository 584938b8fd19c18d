#include "spec/drafters/drawn_tree.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace talon {
namespace {

// The same distribution without one of its tokens.
DraftProbs Without(const DraftProbs& probs, int32_t token) {
  DraftProbs rest;
  double total = 0;
  for (const auto& entry : probs.entries) {
    if (entry.first == token) continue;
    rest.entries.push_back(entry);
    total += entry.second;
  }
  for (auto& [id, probability] : rest.entries) {
    probability = static_cast<float>(probability / total);
  }
  return rest;
}

}  // namespace

DraftProbs TemperedProbs(std::span<const TopKEntry> best, float temperature) {
  DraftProbs probs;
  double total = 0;
  for (const TopKEntry& entry : best) {
    const double weight = std::exp((entry.log_prob - best[0].log_prob) / temperature);
    if (!(weight > 0)) continue;
    probs.entries.emplace_back(entry.id, static_cast<float>(weight));
    total += weight;
  }
  for (auto& [id, probability] : probs.entries) {
    probability = static_cast<float>(probability / total);
  }
  std::sort(probs.entries.begin(), probs.entries.end());
  return probs;
}

int32_t DrawFrom(const DraftProbs& probs, double u) {
  double sum = 0;
  for (const auto& [id, probability] : probs.entries) {
    sum += probability;
    if (sum > u) return id;
  }
  return probs.entries.back().first;
}

bool DrawnTree::wants_growth() const {
  return frontier_ < tree_.size() && depth_ < options_.max_depth &&
         tree_.size() < options_.max_nodes;
}

bool DrawnTree::Grow(std::span<const TopKEntry> best, int ranked) {
  const int end = tree_.size();
  for (int node = frontier_; node < end; ++node) {
    const auto row = best.subspan(static_cast<size_t>(node - frontier_) * ranked, ranked);
    if (std::isnan(row[0].log_prob)) return false;
    AddChildren(node, row);
  }
  frontier_ = end;
  ++depth_;
  return true;
}

void DrawnTree::AddChildren(int node, std::span<const TopKEntry> best) {
  const DraftProbs all = TemperedProbs(best, options_.temperature);
  DraftProbs left = all;
  const int wanted = std::max(1, options_.beams - depth_);
  for (int i = 0; i < wanted && !left.empty() && tree_.size() < options_.max_nodes; ++i) {
    const double u = UniformDraw({.seed = options_.seed,
                                  .position = options_.position + depth_,
                                  .stream = RandomStream::kDrafter,
                                  .draw = static_cast<uint32_t>(tree_.size() - 1)});
    const int32_t token = DrawFrom(left, u);
    const int added = tree_.Add(node, token, all.Of(token));
    tree_.draws.resize(tree_.tokens.size());
    tree_.draws[added] = left;
    left = Without(left, token);
  }
}

}  // namespace talon
