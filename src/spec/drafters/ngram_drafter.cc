#include "spec/drafters/ngram_drafter.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/valid_values.h"

namespace talon {
namespace {

constexpr int kTopChildren = 10;       // children with frequencies that make up a share
constexpr int kScannedChildren = 256;  // most recent ones looked at, so that Propose stays cheap
constexpr int kMaxTrieDepth = 128;

}  // namespace

Status NgramOptions::Validate() const {
  TALON_RETURN_IF_ERROR(CheckRange("ngram: max_trie_depth", max_trie_depth, {2, kMaxTrieDepth}));
  const Range capacities{static_cast<double>(max_trie_depth), NgramTrie::kNone - 1.0};
  TALON_RETURN_IF_ERROR(CheckRange("ngram: capacity", capacity, capacities));
  if (min_match < 1 || min_match > LongestMatch() || LongestMatch() >= max_trie_depth) {
    return InvalidArgument("ngram: match lengths {} to {}, must be 1 <= min <= max <= {}",
                           min_match, LongestMatch(), max_trie_depth - 1);
  }
  if (min_breadth < 1 || min_breadth > max_breadth || max_breadth > kTopChildren) {
    return InvalidArgument("ngram: breadths {} to {}, must be 1 <= min <= max <= {}", min_breadth,
                           max_breadth, kTopChildren);
  }
  TALON_RETURN_IF_ERROR(CheckRange("ngram: min_frequency", min_frequency, {.low = 1}));
  return CheckRange("ngram: min_share", min_share, {0, 1});
}

int NgramOptions::Breadth(int match_length, int level) const {
  const double slope =
      static_cast<double>(max_breadth - min_breadth) / (LongestMatch() - min_match + 1);
  const double breadth = min_breadth + (LongestMatch() - match_length - level) * slope;
  return std::max(1, static_cast<int>(breadth));
}

// A tree within its limits, in the order nodes are found.
class NgramDrafter::Growing {
 public:
  Growing(int32_t root, int max_nodes, int max_depth)
      : tree_(root), depths_{0}, max_nodes_(max_nodes), max_depth_(max_depth) {}

  bool full() const { return tree_.size() >= max_nodes_; }
  // The child of `parent` with `token`, added if missing; -1 where a limit forbids it.
  int FindOrAdd(int parent, int32_t token, float share) {
    const int found = tree_.FindChild(parent, token);
    if (found >= 0) return found;
    if (full() || depths_[parent] >= max_depth_) return -1;
    depths_.push_back(depths_[parent] + 1);
    return tree_.Add(parent, token, share);
  }
  TokenTree Take() const { return CanonicalTree(tree_); }

 private:
  TokenTree tree_;
  std::vector<int> depths_;
  int max_nodes_;
  int max_depth_;
};

NgramDrafter::NgramDrafter(const NgramOptions& options,
                           std::span<const std::vector<int32_t>> corpus)
    : options_(options), trie_(options.max_trie_depth, options.capacity) {
  TALON_CHECK(options.Validate().ok(), "{}", options.Validate().message());
  for (const std::vector<int32_t>& document : corpus) trie_.Insert(document, 0);
}

Status NgramDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  const auto [at, is_new] = sequences_.try_emplace(sequence, prompt.begin(), prompt.end());
  if (!is_new) return InvalidArgument("ngram: sequence {} has already begun", sequence);
  trie_.Insert(at->second, 0);
  return OkStatus();
}

void NgramDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  for (size_t i = 0; i < requests.size(); ++i) trees[i] = Draft(requests[i]);
}

void NgramDrafter::Observe(SequenceId sequence, std::span<const int32_t> emitted) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end()) return;
  std::vector<int32_t>& tokens = at->second;
  const size_t first_new = tokens.size();
  tokens.insert(tokens.end(), emitted.begin(), emitted.end());
  trie_.Insert(tokens, first_new);
}

void NgramDrafter::Rewind(SequenceId sequence, int length) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end() || static_cast<size_t>(length) >= at->second.size()) return;
  trie_.Remove(at->second, length);
  at->second.resize(length);
}

void NgramDrafter::End(SequenceId sequence) { sequences_.erase(sequence); }

TokenTree NgramDrafter::Draft(const DraftRequest& request) const {
  Growing growing(request.tokens.back(), request.budget.max_nodes, request.budget.max_depth);
  const int longest = std::min(options_.LongestMatch(), static_cast<int>(request.tokens.size()));
  for (int length = longest; length >= options_.min_match && !growing.full(); --length) {
    const NgramTrie::NodeId anchor = trie_.Find(request.tokens.last(length));
    if (anchor == NgramTrie::kNone) continue;
    if (options_.growth == NgramOptions::Growth::kBfs) {
      GrowBfs(anchor, length, &growing);
    } else {
      GrowProb(anchor, &growing);
    }
  }
  return growing.Take();
}

void NgramDrafter::GrowBfs(NgramTrie::NodeId anchor, int match_length, Growing* growing) const {
  struct Pending {
    NgramTrie::NodeId node;
    int parent;  // in the tree
    int level;
  };
  std::queue<Pending> queue({Pending{anchor, 0, 0}});
  while (!queue.empty() && !growing->full()) {
    const Pending next = queue.front();
    queue.pop();
    int breadth = options_.Breadth(match_length, next.level);
    for (const Continuation& child : Continuations(next.node)) {
      if (breadth-- == 0) break;
      const int added = growing->FindOrAdd(next.parent, trie_.Token(child.node), child.share);
      if (added >= 0) queue.push({child.node, added, next.level + 1});
    }
  }
}

void NgramDrafter::GrowProb(NgramTrie::NodeId anchor, Growing* growing) const {
  struct Pending {
    double score;  // product of shares from the anchor
    int order;     // equal scores: first come, first served
    int parent;    // in the tree
    Continuation child;
    bool operator<(const Pending& other) const {
      return score != other.score ? score < other.score : order > other.order;
    }
  };
  std::priority_queue<Pending> heap;
  int order = 0;
  const auto push_children = [&](NgramTrie::NodeId node, int parent, double score) {
    for (const Continuation& child : Continuations(node)) {
      heap.push({score * child.share, order++, parent, child});
    }
  };
  push_children(anchor, 0, 1.0);
  while (!heap.empty() && !growing->full()) {
    const Pending best = heap.top();
    heap.pop();
    const NgramTrie::NodeId node = best.child.node;
    const int added = growing->FindOrAdd(best.parent, trie_.Token(node), best.child.share);
    if (added >= 0) push_children(node, added, best.score);
  }
}

// The ten best children, by recency (BFS) or by frequency (PROB), less those below the minima.
std::vector<NgramDrafter::Continuation> NgramDrafter::Continuations(NgramTrie::NodeId node) const {
  const bool by_frequency = options_.growth == NgramOptions::Growth::kProb;
  const size_t scanned = by_frequency ? kScannedChildren : kTopChildren;
  std::vector<Continuation> children;
  for (NgramTrie::NodeId child = trie_.FirstChild(node);
       child != NgramTrie::kNone && children.size() < scanned; child = trie_.NextSibling(child)) {
    children.push_back({.node = child, .frequency = static_cast<int>(trie_.Frequency(child))});
  }
  if (by_frequency) {
    std::ranges::stable_sort(children, std::greater<>(), &Continuation::frequency);
    if (children.size() > kTopChildren) children.resize(kTopChildren);
  }
  int64_t sum = 0;
  for (const Continuation& child : children) sum += child.frequency;
  for (Continuation& child : children) {
    child.share = static_cast<float>(static_cast<double>(child.frequency) / sum);
  }
  std::erase_if(children, [&](const Continuation& child) {
    return child.frequency < options_.min_frequency || child.share < options_.min_share;
  });
  return children;
}

}  // namespace talon
