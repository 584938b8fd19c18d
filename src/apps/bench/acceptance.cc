#include "apps/bench/acceptance.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace talon {
namespace {

// Nodes from the root to the deepest node.
std::vector<int32_t> LongestPath(const TokenTree& tree) {
  const std::vector<int32_t> depths = TreeDepths(tree.parents);
  auto node = static_cast<int32_t>(std::ranges::max_element(depths) - depths.begin());
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.parents[node]) path.push_back(node);
  std::ranges::reverse(path);
  return path;
}

}  // namespace

double DrawnAcceptance::ExpectedTau() const {
  double tau = 1;
  double reached = 1;
  for (const double acceptance : by_depth_) tau += reached *= acceptance;
  return tau;
}

int DrawnAcceptance::Draw() {
  int accepted = 0;
  for (const double acceptance : by_depth_) {
    if (UniformDraw({.seed = seed_, .position = draws_++}) >= acceptance) break;
    ++accepted;
  }
  return accepted;
}

int DrawnAcceptance::DrawConfirmed(int trunk) {
  if (agreement_.empty()) return trunk;
  for (int distance = 1; distance <= trunk; ++distance) {
    const auto bucket = static_cast<size_t>(std::bit_width(static_cast<unsigned>(distance)) - 1);
    const double agreement = agreement_[std::min(bucket, agreement_.size() - 1)];
    if (UniformDraw({.seed = seed_, .position = draws_++}) >= agreement) return distance - 1;
  }
  return trunk;
}

void DrawnAcceptance::Edit(const TokenTree& tree, int trunk, std::span<int32_t> choices) {
  if (tree.size() == 1) return;  // nothing was drafted
  const std::vector<int32_t> path = LongestPath(tree);
  int accepted = DrawConfirmed(trunk);
  if (const int drafts = static_cast<int>(path.size()) - 1 - trunk;
      accepted == trunk && drafts > 0) {
    const int drawn = Draw();
    if (drafts < drawn) ++cut_short_;
    accepted += std::min(drawn, drafts);
  }
  for (int i = 0; i < accepted; ++i) choices[path[i]] = tree.tokens[path[i + 1]];
  const int32_t last = path[accepted];
  // Smaller ids first, so that the vocabulary is not left.
  while (tree.FindChild(last, choices[last]) >= 0) {
    choices[last] = choices[last] > 1 ? choices[last] - 1 : tree.size() + 1;
  }
}

}  // namespace talon
