// Counts of all runs of up to `depth` tokens in a text that grows at its end.
//
// A path-compressed trie of the windows of exactly `depth` tokens, two nodes a token at most. The
// last depth - 1 starts have no whole window yet; they are compared with the text directly, so that
// counts are exact at every moment and appending never moves a node.
// Edge labels are references into the text. They stay valid because tokens leave it at one end
// only, named at construction: a label refers to the window that will leave last. One thread at a
// time; const functions may run concurrently.
#ifndef TALON_SPEC_DRAFTERS_SUFFIX_TREE_H_
#define TALON_SPEC_DRAFTERS_SUFFIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/drafters/child_map.h"

namespace talon {

class SuffixTree {
 public:
  static constexpr int kMaxDepth = 64;
  static constexpr int32_t kEnd = -1;  // pads the text between documents

  enum class Removal { kNewest, kOldest };

  // The place of a run in the tree.
  struct Cursor {
    uint32_t node = 0;   // at or above whose end the run stops; kNone if no whole window has it
    int length = 0;      // tokens of the run
    uint64_t tails = 0;  // bit i: the i-th last start of the text, not yet a window, has it
  };

  struct Continuation {
    int32_t token = 0;
    int count = 0;
  };

  // REQUIRES: 2 <= depth <= kMaxDepth.
  SuffixTree(int depth, Removal removal);

  // O(tokens * depth).
  void Append(std::span<const int32_t> tokens);
  // Ends a document: no run continues into the next one. Adds depth - 1 padding tokens.
  void EndDocument();
  // REQUIRES: the matching Removal, count <= size().
  void RemoveNewest(size_t count);
  void RemoveOldest(size_t count);

  Cursor Root() const;
  // Extends the run by `token`; false if the text does not have it.
  bool Descend(int32_t token, Cursor* cursor) const;
  // True if some occurrence of the run is followed by a token, within `depth`.
  bool HasNext(const Cursor& cursor) const;
  // What follows the run, most frequent first (of many, the most recent), and how often anything
  // does. REQUIRES: cursor.length >= 1.
  int64_t Continuations(const Cursor& cursor, std::vector<Continuation>* continuations) const;
  int64_t Count(const Cursor& cursor) const;

  int depth() const { return depth_; }
  size_t size() const { return static_cast<size_t>(end() - begin_); }  // tokens, padding included
  size_t num_nodes() const { return children_.size(); }
  std::span<const int32_t> text() const { return std::span(text_).subspan(begin_ - base_); }

 private:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = ChildMap::kNone;

  struct Node {
    int64_t start = 0;  // a window that passes here
    int depth = 0;      // tokens from the root to the node's end
    int count = 0;      // windows that pass here
    uint32_t parent = kNone;
    uint32_t first_child = kNone;  // most recent first
    uint32_t previous_sibling = kNone;
    uint32_t next_sibling = kNone;
  };

  int64_t end() const { return base_ + static_cast<int64_t>(text_.size()); }
  int32_t At(int64_t position) const { return text_[position - base_]; }
  int32_t EdgeToken(uint32_t node) const;
  bool IsWindow(int64_t start) const { return At(start) != kEnd; }

  void InsertWindow(int64_t start);
  void RemoveWindow(int64_t start);
  uint32_t SplitEdge(uint32_t node, int depth);
  void RemoveLeaf(uint32_t leaf);
  uint32_t NewNode(const Node& node);
  void Link(uint32_t node, uint32_t parent);
  void Unlink(uint32_t node);
  void MoveToFront(uint32_t node);
  void LinkSibling(uint32_t node);
  void UnlinkSibling(uint32_t node);
  uint32_t DescendTree(int32_t token, const Cursor& cursor) const;
  int64_t TreeContinuations(const Cursor& cursor, std::vector<Continuation>* continuations) const;

  int depth_;
  Removal removal_;
  std::vector<int32_t> text_;  // positions base_ .. end(), live from begin_
  int64_t base_ = 0;
  int64_t begin_ = 0;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_;
  ChildMap children_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_SUFFIX_TREE_H_
