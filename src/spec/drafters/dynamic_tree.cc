#include "spec/drafters/dynamic_tree.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace talon {

DynamicTree::DynamicTree(int top_k, int steps, int max_nodes, float min_prob)
    : top_k_(top_k),
      steps_(std::clamp(max_nodes - 1, 1, std::max(steps, 1))),
      max_nodes_(max_nodes),
      min_score_(min_prob > 0 ? std::log(min_prob) : -INFINITY) {}

bool DynamicTree::AddCandidate(const TopKEntry& entry, float parent_score, int parent_flat,
                               int flat_id) {
  if (std::isnan(entry.log_prob)) return false;
  candidates_.push_back(
      {entry.id, parent_score + entry.log_prob, entry.log_prob, parent_flat, flat_id});
  return true;
}

bool DynamicTree::Start(std::span<const TopKEntry> best) {
  TALON_CHECK(static_cast<int>(best.size()) == top_k_);
  for (int rank = 0; rank < top_k_; ++rank) {
    if (!AddCandidate(best[rank], 0, -1, rank)) return false;
  }
  level_ = 1;
  ChooseBeam(0);
  return true;
}

bool DynamicTree::Expand(std::span<const TopKEntry> best) {
  TALON_CHECK(best.size() == beam_.size() * top_k_);
  const size_t first = candidates_.size();
  const int level_base = top_k_ + (level_ - 1) * top_k_ * top_k_;
  for (size_t slot = 0; slot < beam_.size(); ++slot) {
    const int parent_flat = expanded_[beam_[slot]].flat_id;
    const auto parent = std::lower_bound(
        candidates_.begin(), candidates_.end(), parent_flat,
        [](const Candidate& candidate, int flat) { return candidate.flat_id < flat; });
    const float parent_score = parent->score;
    for (int rank = 0; rank < top_k_; ++rank) {
      const auto index = static_cast<int>(slot) * top_k_ + rank;
      if (!AddCandidate(best[index], parent_score, parent_flat, level_base + index)) return false;
    }
  }
  ++level_;
  ChooseBeam(first);
  return true;
}

// The best k candidates from `first` on, in order-rule order; possible tokens only.
void DynamicTree::ChooseBeam(size_t first) {
  std::vector<const Candidate*> order;
  for (size_t i = first; i < candidates_.size(); ++i) {
    if (candidates_[i].score > -INFINITY) order.push_back(&candidates_[i]);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Candidate* a, const Candidate* b) { return a->score > b->score; });
  if (static_cast<int>(order.size()) > top_k_) order.resize(top_k_);
  beam_.clear();
  beam_mass_ = 0;
  for (const Candidate* candidate : order) {
    const auto parent = std::find_if(expanded_.begin(), expanded_.end(), [&](const Expanded& node) {
      return node.flat_id == candidate->parent_flat;
    });
    const int parent_index =
        candidate->parent_flat < 0 ? -1 : static_cast<int>(parent - expanded_.begin());
    beam_.push_back(static_cast<int>(expanded_.size()));
    beam_mass_ += std::exp(candidate->score);
    expanded_.push_back({candidate->token, parent_index, level_, candidate->flat_id});
  }
}

TokenTree DynamicTree::Build(int32_t root) const {
  std::vector<const Candidate*> kept;
  for (const Candidate& candidate : candidates_) {
    if (candidate.score > -INFINITY && candidate.score >= min_score_) kept.push_back(&candidate);
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Candidate* a, const Candidate* b) { return a->score > b->score; });
  if (static_cast<int>(kept.size()) > max_nodes_ - 1) kept.resize(std::max(max_nodes_ - 1, 0));
  std::sort(kept.begin(), kept.end(),
            [](const Candidate* a, const Candidate* b) { return a->flat_id < b->flat_id; });
  TokenTree tree(root);
  for (const Candidate* candidate : kept) {
    int parent = 0;
    if (candidate->parent_flat >= 0) {
      const auto at =
          std::lower_bound(kept.begin(), kept.end(), candidate->parent_flat,
                           [](const Candidate* node, int flat) { return node->flat_id < flat; });
      TALON_CHECK(at != kept.end() && (*at)->flat_id == candidate->parent_flat,
                  "a kept node's parent is kept");
      parent = static_cast<int>(at - kept.begin()) + 1;
    }
    tree.Add(parent, candidate->token, std::exp(candidate->log_prob));
  }
  return tree;
}

TokenTree DynamicTree::Outline(int32_t root) const {
  const int candidates = top_k_ + (steps_ - 1) * top_k_ * top_k_;
  TokenTree tree(root);
  for (int i = 1; i < std::min(max_nodes_, 1 + candidates); ++i) {
    tree.Add(std::min(i, steps_) - 1, root, 1);
  }
  return tree;
}

}  // namespace talon
