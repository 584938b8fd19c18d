// A trie of token windows with frequencies, shared by all sequences of the NGRAM drafter.
//
// A node stands for a run of up to `depth` tokens; its frequency is how often that run was counted.
// Children are listed most recently used first. At most `capacity` nodes: the least recently used
// leaves go first (a node is never older than its children, so the oldest node is a leaf).
// One thread at a time.
#ifndef TALON_SPEC_DRAFTERS_NGRAM_TRIE_H_
#define TALON_SPEC_DRAFTERS_NGRAM_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/drafters/child_map.h"

namespace talon {

class NgramTrie {
 public:
  using NodeId = uint32_t;
  static constexpr NodeId kRoot = 0;
  static constexpr NodeId kNone = ChildMap::kNone;

  // REQUIRES: 1 <= depth <= capacity.
  NgramTrie(int depth, size_t capacity);

  // Counts all runs of up to `depth` tokens that end at or after tokens[first_new]: what the text
  // gained when it grew from first_new tokens. O(new tokens * depth).
  void Insert(std::span<const int32_t> tokens, size_t first_new);
  // The opposite: takes back what Insert(tokens, first_removed) counted, as far as it is still
  // here.
  void Remove(std::span<const int32_t> tokens, size_t first_removed);

  // The node of a run, or kNone.
  NodeId Find(std::span<const int32_t> run) const;

  NodeId FirstChild(NodeId node) const { return nodes_[node].first_child; }
  NodeId NextSibling(NodeId node) const { return nodes_[node].next_sibling; }
  int32_t Token(NodeId node) const { return nodes_[node].token; }
  uint32_t Frequency(NodeId node) const { return nodes_[node].frequency; }
  size_t size() const { return children_.size(); }  // nodes, root excluded

 private:
  struct Node {
    int32_t token = 0;
    uint32_t frequency = 0;
    NodeId parent = kNone;
    NodeId first_child = kNone;
    NodeId previous_sibling = kNone;
    NodeId next_sibling = kNone;  // also links the free nodes
    NodeId newer = kNone;         // neighbours in the order of use
    NodeId older = kNone;
  };

  // A window of the text and the first of its tokens that counts.
  struct Window {
    std::span<const int32_t> tokens;
    size_t first_counted = 0;
  };
  template <typename Visit>
  void ForEachWindow(std::span<const int32_t> tokens, size_t first_new, Visit visit) const;
  void InsertWindow(const Window& window);
  void RemoveWindow(const Window& window);

  NodeId AddChild(NodeId parent, int32_t token);
  void Erase(NodeId leaf);
  void Touch(NodeId node);
  void LinkSibling(NodeId node);
  void UnlinkSibling(NodeId node);
  void LinkNewest(NodeId node);
  void UnlinkUse(NodeId node);

  size_t depth_;
  size_t capacity_;
  std::vector<Node> nodes_;
  ChildMap children_;
  NodeId free_ = kNone;
  NodeId newest_ = kNone;
  NodeId oldest_ = kNone;
  std::vector<NodeId> path_;  // scratch of the window walks
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_NGRAM_TRIE_H_
