#include "spec/drafters/suffix_tree.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace talon {
namespace {

constexpr int kScannedChildren = 64;  // most recent ones looked at, so that a draft stays cheap

void Add(int32_t token, int count, std::vector<SuffixTree::Continuation>* continuations) {
  const auto at = std::ranges::find(*continuations, token, &SuffixTree::Continuation::token);
  if (at == continuations->end()) {
    continuations->push_back({token, count});
  } else {
    at->count += count;
  }
}

}  // namespace

SuffixTree::SuffixTree(int depth, Removal removal) : depth_(depth), removal_(removal), nodes_(1) {
  TALON_CHECK(depth >= 2 && depth <= kMaxDepth, "depth {}", depth);
}

void SuffixTree::Append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    text_.push_back(token);
    const int64_t start = end() - depth_;
    if (start >= begin_ && IsWindow(start)) InsertWindow(start);
  }
}

void SuffixTree::EndDocument() {
  const std::vector<int32_t> padding(depth_ - 1, kEnd);
  Append(padding);
}

void SuffixTree::RemoveNewest(size_t count) {
  TALON_CHECK(removal_ == Removal::kNewest && count <= size(), "remove {} of {}", count, size());
  for (size_t i = 0; i < count; ++i) {
    const int64_t start = end() - depth_;
    if (start >= begin_ && IsWindow(start)) RemoveWindow(start);
    text_.pop_back();
  }
}

void SuffixTree::RemoveOldest(size_t count) {
  TALON_CHECK(removal_ == Removal::kOldest && count <= size(), "remove {} of {}", count, size());
  for (size_t i = 0; i < count; ++i, ++begin_) {
    if (begin_ + depth_ <= end() && IsWindow(begin_)) RemoveWindow(begin_);
  }
  if (begin_ - base_ > static_cast<int64_t>(text_.size() / 2)) {
    text_.erase(text_.begin(), text_.begin() + (begin_ - base_));
    base_ = begin_;
  }
}

SuffixTree::Cursor SuffixTree::Root() const {
  const int tails = static_cast<int>(std::min<size_t>(depth_ - 1, size()));
  return {.node = kRoot, .length = 0, .tails = (uint64_t{1} << tails) - 1};
}

bool SuffixTree::Descend(int32_t token, Cursor* cursor) const {
  cursor->node = DescendTree(token, *cursor);
  for (uint64_t left = cursor->tails; left != 0; left &= left - 1) {
    const int bit = std::countr_zero(left);
    const int64_t position = end() - 1 - bit + cursor->length;
    if (position >= end() || At(position) != token) cursor->tails &= ~(uint64_t{1} << bit);
  }
  ++cursor->length;
  return cursor->node != kNone || cursor->tails != 0;
}

bool SuffixTree::HasNext(const Cursor& cursor) const {
  if (cursor.length >= depth_) return false;
  if ((cursor.tails >> cursor.length) != 0) return true;
  if (cursor.node == kNone) return false;
  const Node& node = nodes_[cursor.node];
  // A node has several children, at most one of them the end of a document.
  return cursor.length == node.depth || At(node.start + cursor.length) != kEnd;
}

int64_t SuffixTree::Continuations(const Cursor& cursor,
                                  std::vector<Continuation>* continuations) const {
  continuations->clear();
  if (!HasNext(cursor)) return 0;
  int64_t total = cursor.node == kNone ? 0 : TreeContinuations(cursor, continuations);
  for (uint64_t left = cursor.tails >> cursor.length; left != 0; left &= left - 1) {
    Add(At(end() - 1 - std::countr_zero(left)), 1, continuations);
    ++total;
  }
  std::ranges::stable_sort(*continuations, std::greater<>(), &Continuation::count);
  return total;
}

int64_t SuffixTree::Count(const Cursor& cursor) const {
  return (cursor.node == kNone ? 0 : nodes_[cursor.node].count) + std::popcount(cursor.tails);
}

int32_t SuffixTree::EdgeToken(uint32_t node) const {
  return At(nodes_[node].start + nodes_[nodes_[node].parent].depth);
}

void SuffixTree::InsertWindow(int64_t start) {
  for (uint32_t node = kRoot; nodes_[node].depth < depth_;) {
    uint32_t child = children_.Find(node, At(start + nodes_[node].depth));
    if (child == kNone) {
      Link(NewNode({.start = start, .depth = depth_, .count = 1}), node);
      return;
    }
    int same = nodes_[node].depth + 1;
    while (same < nodes_[child].depth && At(nodes_[child].start + same) == At(start + same)) {
      ++same;
    }
    if (same < nodes_[child].depth) child = SplitEdge(child, same);
    ++nodes_[child].count;
    if (removal_ == Removal::kOldest) nodes_[child].start = start;
    MoveToFront(child);
    node = child;
  }
}

void SuffixTree::RemoveWindow(int64_t start) {
  uint32_t node = kRoot;
  while (nodes_[node].depth < depth_) {
    node = children_.Find(node, At(start + nodes_[node].depth));
    --nodes_[node].count;
  }
  if (nodes_[node].count == 0) RemoveLeaf(node);
}

// Puts a node at `depth` on the edge that ends at `node`.
uint32_t SuffixTree::SplitEdge(uint32_t node, int depth) {
  const Node below = nodes_[node];
  Unlink(node);
  const uint32_t middle = NewNode({.start = below.start, .depth = depth, .count = below.count});
  Link(middle, below.parent);
  Link(node, middle);
  return middle;
}

// A parent left with one child is not a branch any more: its edges become one.
void SuffixTree::RemoveLeaf(uint32_t leaf) {
  const uint32_t parent = nodes_[leaf].parent;
  Unlink(leaf);
  free_.push_back(leaf);
  const uint32_t only = nodes_[parent].first_child;
  if (parent == kRoot || nodes_[only].next_sibling != kNone) return;
  const uint32_t grandparent = nodes_[parent].parent;
  Unlink(only);
  Unlink(parent);
  free_.push_back(parent);
  Link(only, grandparent);
}

uint32_t SuffixTree::NewNode(const Node& node) {
  if (free_.empty()) {
    nodes_.push_back(node);
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  nodes_[id] = node;
  return id;
}

void SuffixTree::Link(uint32_t node, uint32_t parent) {
  nodes_[node].parent = parent;
  children_.Insert(parent, EdgeToken(node), node);
  LinkSibling(node);
}

void SuffixTree::Unlink(uint32_t node) {
  children_.Erase(nodes_[node].parent, EdgeToken(node));
  UnlinkSibling(node);
}

void SuffixTree::MoveToFront(uint32_t node) {
  if (nodes_[node].previous_sibling == kNone) return;
  UnlinkSibling(node);
  LinkSibling(node);
}

void SuffixTree::LinkSibling(uint32_t node) {
  uint32_t& first = nodes_[nodes_[node].parent].first_child;
  nodes_[node].previous_sibling = kNone;
  nodes_[node].next_sibling = first;
  if (first != kNone) nodes_[first].previous_sibling = node;
  first = node;
}

void SuffixTree::UnlinkSibling(uint32_t node) {
  const Node& at = nodes_[node];
  (at.previous_sibling == kNone ? nodes_[at.parent].first_child
                                : nodes_[at.previous_sibling].next_sibling) = at.next_sibling;
  if (at.next_sibling != kNone) nodes_[at.next_sibling].previous_sibling = at.previous_sibling;
}

uint32_t SuffixTree::DescendTree(int32_t token, const Cursor& cursor) const {
  if (cursor.node == kNone || cursor.length >= depth_) return kNone;
  const Node& node = nodes_[cursor.node];
  if (cursor.length == node.depth) return children_.Find(cursor.node, token);
  return At(node.start + cursor.length) == token ? cursor.node : kNone;
}

int64_t SuffixTree::TreeContinuations(const Cursor& cursor,
                                      std::vector<Continuation>* continuations) const {
  const Node& node = nodes_[cursor.node];
  if (cursor.length < node.depth) {
    const int32_t token = At(node.start + cursor.length);
    if (token == kEnd) return 0;
    continuations->push_back({token, node.count});
    return node.count;
  }
  int scanned = 0;
  for (uint32_t child = node.first_child; child != kNone && scanned < kScannedChildren;
       child = nodes_[child].next_sibling, ++scanned) {
    if (EdgeToken(child) != kEnd) continuations->push_back({EdgeToken(child), nodes_[child].count});
  }
  const uint32_t ended = children_.Find(cursor.node, kEnd);
  return node.count - (ended == kNone ? 0 : nodes_[ended].count);
}

}  // namespace talon
