#include "engine/step/proposal.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace talon {

void Proposal::SetDrafts(TokenTree drafts) {
  drafts_ = std::move(drafts);
  if (has_trunk()) BuildTree();
}

void Proposal::DropDrafts() {
  TALON_CHECK(!has_trunk());
  drafts_.Truncate(1);
  uncut_ = {};
}

void Proposal::CutTo(int nodes) {
  if (has_trunk() || drafts_.size() <= nodes) return;
  uncut_ = drafts_;
  drafts_.Truncate(nodes);
}

void Proposal::AddTrunk(std::span<const int32_t> tokens, bool judged) {
  TALON_CHECK(!has_trunk() && !tokens.empty());
  trunk_.assign(tokens.begin(), tokens.end());
  judges_trunk_ = judged;
  BuildTree();
}

// Below a trunk drafts count as certain: the distributions they were drawn from are dropped.
void Proposal::BuildTree() {
  drafts_.draws.clear();
  with_trunk_ = TokenTree(trunk_[0]);
  const int root = draft_root();
  for (int i = 1; i < root; ++i) with_trunk_.Add(i - 1, trunk_[i], 1);
  with_trunk_.Add(root - 1, drafts_.tokens[0], 1);
  for (int i = 1; i < drafts_.size(); ++i) {
    with_trunk_.Add(root + drafts_.parents[i], drafts_.tokens[i], drafts_.probs[i]);
  }
}

int Proposal::LongestPath() const {
  const std::vector<int32_t> depths = TreeDepths(tree().parents);
  return 1 + *std::max_element(depths.begin(), depths.end());
}

std::vector<int32_t> Proposal::PathInTree(std::span<const int32_t> judged_path) const {
  std::vector<int32_t> path(first_judged());
  std::iota(path.begin(), path.end(), 0);
  for (const int32_t node : judged_path) path.push_back(first_judged() + node);
  return path;
}

std::vector<int32_t> Proposal::PathInDrafts(std::span<const int32_t> tree_path) const {
  std::vector<int32_t> path;
  for (const int32_t node : tree_path) {
    if (node >= draft_root()) path.push_back(node - draft_root());
  }
  return path;
}

// Node 0 is the token before the provisional ones, the drafts' root is the last of them.
int Proposal::NumConfirmed(std::span<const int32_t> tree_path) const {
  return std::min(static_cast<int>(tree_path.size()) - 1, trunk_len());
}

}  // namespace talon
