#include "remote/overlap.h"

#include <algorithm>
#include <cmath>

namespace talon {
namespace {

bool Contains(std::span<const int32_t> tokens, int32_t token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

// Copies nodes to a smaller forest; a node whose parent was left out is left out too.
class Copier {
 public:
  explicit Copier(const DraftForest& from) : from_(from), place_(from.tokens.size(), kLeftOut) {}

  bool HasParent(int node) const {
    return from_.parents[node] < 0 || place_[from_.parents[node]] != kLeftOut;
  }
  // REQUIRES: HasParent(node).
  void Keep(int node) {
    const int parent = from_.parents[node];
    KeepUnder(node, parent < 0 ? -1 : place_[parent]);
  }
  void KeepUnder(int node, int new_parent) {
    place_[node] = out_.size();
    out_.tokens.push_back(from_.tokens[node]);
    out_.probs.push_back(from_.probs[node]);
    out_.parents.push_back(new_parent);
    if (!from_.draws.empty()) out_.draws.push_back(from_.draws[node]);
  }
  // Stands for its children's parent without being copied: they become roots.
  void Skip(int node) { place_[node] = -1; }

  DraftForest Take() { return std::move(out_); }
  int size() const { return out_.size(); }

 private:
  static constexpr int kLeftOut = -2;
  const DraftForest& from_;
  std::vector<int> place_;
  DraftForest out_;
};

}  // namespace

std::vector<int32_t> LongestPath(const DraftForest& forest, std::span<const int32_t> end_tokens) {
  std::vector<int> depth(forest.tokens.size(), 0);
  std::vector<double> score(forest.tokens.size(), 0);
  int best = -1;
  for (int i = 0; i < forest.size(); ++i) {
    const int parent = forest.parents[i];
    const bool ended =
        parent >= 0 && (depth[parent] == 0 || Contains(end_tokens, forest.tokens[parent]));
    if (ended) continue;  // depth 0: out of reach
    depth[i] = parent < 0 ? 1 : depth[parent] + 1;
    score[i] = (parent < 0 ? 0 : score[parent]) + std::log(std::max(forest.probs[i], 1e-30f));
    if (best < 0 || depth[i] > depth[best] || (depth[i] == depth[best] && score[i] > score[best])) {
      best = i;
    }
  }
  std::vector<int32_t> path;
  for (int node = best; node >= 0; node = forest.parents[node]) path.push_back(forest.tokens[node]);
  std::ranges::reverse(path);
  return path;
}

int MatchedLength(const DraftForest& forest, std::span<const int32_t> tokens) {
  int at = -1;
  for (size_t length = 0; length < tokens.size(); ++length) {
    int next = at + 1;
    while (next < forest.size() &&
           (forest.parents[next] != at || forest.tokens[next] != tokens[length])) {
      ++next;
    }
    if (next == forest.size()) return static_cast<int>(length);
    at = next;
  }
  return static_cast<int>(tokens.size());
}

DraftForest Below(const DraftForest& forest, int32_t token) {
  Copier copier(forest);
  for (int i = 0; i < forest.size(); ++i) {
    if (forest.parents[i] < 0) {
      if (forest.tokens[i] == token) copier.Skip(i);
    } else if (copier.HasParent(i)) {
      copier.Keep(i);
    }
  }
  return copier.Take();
}

DraftForest Prune(const DraftForest& forest, const ForestLimits& limits) {
  Copier copier(forest);
  std::vector<int> depth(forest.tokens.size(), 0);         // roots: 0
  std::vector<int> children(forest.tokens.size() + 1, 0);  // [0] is of the roots' parent
  for (int i = 0; i < forest.size() && copier.size() < limits.max_nodes; ++i) {
    const int parent = forest.parents[i];
    if (!copier.HasParent(i)) continue;
    if (limits.vocab_size > 0 && forest.tokens[i] >= limits.vocab_size) continue;
    if (parent >= 0 && Contains(limits.end_tokens, forest.tokens[parent])) continue;
    depth[i] = parent < 0 ? 0 : depth[parent] + 1;
    const int wanted = std::max(1, limits.beams - depth[i]);
    if (depth[i] >= limits.max_depth) continue;
    if (limits.beams > 0 && children[parent + 1] >= wanted) continue;
    ++children[parent + 1];
    copier.Keep(i);
  }
  return copier.Take();
}

}  // namespace talon
