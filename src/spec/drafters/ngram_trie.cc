#include "spec/drafters/ngram_trie.h"

#include <algorithm>

#include "base/check.h"

namespace talon {

NgramTrie::NgramTrie(int depth, size_t capacity) : depth_(depth), capacity_(capacity), nodes_(1) {
  TALON_CHECK(depth >= 1 && depth_ <= capacity, "depth {}, capacity {}", depth, capacity);
}

void NgramTrie::Insert(std::span<const int32_t> tokens, size_t first_new) {
  ForEachWindow(tokens, first_new, [this](const Window& window) { InsertWindow(window); });
}

void NgramTrie::Remove(std::span<const int32_t> tokens, size_t first_removed) {
  ForEachWindow(tokens, first_removed, [this](const Window& window) { RemoveWindow(window); });
}

NgramTrie::NodeId NgramTrie::Find(std::span<const int32_t> run) const {
  NodeId node = kRoot;
  for (const int32_t token : run) {
    node = children_.Find(node, token);
    if (node == kNone) break;
  }
  return node;
}

template <typename Visit>
void NgramTrie::ForEachWindow(std::span<const int32_t> tokens, size_t first_new,
                              Visit visit) const {
  const size_t first_start = first_new >= depth_ ? first_new - depth_ + 1 : 0;
  for (size_t start = first_start; start < tokens.size(); ++start) {
    visit(Window{.tokens = tokens.subspan(start, std::min(depth_, tokens.size() - start)),
                 .first_counted = first_new > start ? first_new - start : 0});
  }
}

void NgramTrie::InsertWindow(const Window& window) {
  // Room first, so that nothing on the path is evicted under way.
  while (size() + window.tokens.size() > capacity_) Erase(oldest_);
  path_.clear();
  NodeId node = kRoot;
  for (size_t i = 0; i < window.tokens.size(); ++i) {
    NodeId child = children_.Find(node, window.tokens[i]);
    const bool is_new = child == kNone;
    if (is_new) child = AddChild(node, window.tokens[i]);
    if (is_new || i >= window.first_counted) ++nodes_[child].frequency;
    path_.push_back(child);
    node = child;
  }
  // Deepest first: a node stays more recent than its children.
  for (auto at = path_.rbegin(); at != path_.rend(); ++at) Touch(*at);
}

void NgramTrie::RemoveWindow(const Window& window) {
  path_.clear();
  NodeId node = kRoot;
  for (size_t i = 0; i < window.tokens.size(); ++i) {
    node = children_.Find(node, window.tokens[i]);
    if (node == kNone) break;
    if (i >= window.first_counted && nodes_[node].frequency > 0) --nodes_[node].frequency;
    path_.push_back(node);
  }
  for (auto at = path_.rbegin(); at != path_.rend(); ++at) {
    if (nodes_[*at].frequency == 0 && nodes_[*at].first_child == kNone) Erase(*at);
  }
}

NgramTrie::NodeId NgramTrie::AddChild(NodeId parent, int32_t token) {
  NodeId node = free_;
  if (node == kNone) {
    node = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
  } else {
    free_ = nodes_[node].next_sibling;
  }
  nodes_[node] = {.token = token, .parent = parent};
  children_.Insert(parent, token, node);
  LinkSibling(node);
  LinkNewest(node);
  return node;
}

void NgramTrie::Erase(NodeId leaf) {
  TALON_DCHECK(nodes_[leaf].first_child == kNone, "node {} is not a leaf", leaf);
  children_.Erase(nodes_[leaf].parent, nodes_[leaf].token);
  UnlinkSibling(leaf);
  UnlinkUse(leaf);
  nodes_[leaf].next_sibling = free_;
  free_ = leaf;
}

void NgramTrie::Touch(NodeId node) {
  UnlinkUse(node);
  LinkNewest(node);
  UnlinkSibling(node);
  LinkSibling(node);
}

void NgramTrie::LinkSibling(NodeId node) {
  NodeId& first = nodes_[nodes_[node].parent].first_child;
  nodes_[node].previous_sibling = kNone;
  nodes_[node].next_sibling = first;
  if (first != kNone) nodes_[first].previous_sibling = node;
  first = node;
}

void NgramTrie::UnlinkSibling(NodeId node) {
  const Node& at = nodes_[node];
  if (at.previous_sibling == kNone) {
    nodes_[at.parent].first_child = at.next_sibling;
  } else {
    nodes_[at.previous_sibling].next_sibling = at.next_sibling;
  }
  if (at.next_sibling != kNone) nodes_[at.next_sibling].previous_sibling = at.previous_sibling;
}

void NgramTrie::LinkNewest(NodeId node) {
  nodes_[node].newer = kNone;
  nodes_[node].older = newest_;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = node;
  newest_ = node;
}

void NgramTrie::UnlinkUse(NodeId node) {
  const Node& at = nodes_[node];
  (at.newer == kNone ? newest_ : nodes_[at.newer].older) = at.older;
  (at.older == kNone ? oldest_ : nodes_[at.older].newer) = at.newer;
}

}  // namespace talon
