// What trees of each size are worth: how often their best, second, .. node was accepted.
//
// Nodes are ranked by the product of their scores from the root, as drafters choose them, so a tree
// of n nodes has the n - 1 best of a larger one. Counts are halved now and then, so that they
// follow the text. A rank that was hardly tried counts as the one before it, so that it is tried.
#ifndef TALON_SPEC_POLICY_SIZE_WORTH_H_
#define TALON_SPEC_POLICY_SIZE_WORTH_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "spec/token_tree.h"

namespace talon {

class SizeWorth {
 public:
  // A verified tree and its accepted nodes, the root first.
  void Observe(const TokenTree& tree, std::span<const int32_t> path) {
    std::vector<float> reach = {1};
    for (int i = 1; i < tree.size(); ++i) {
      reach.push_back(reach[tree.parents[i]] * std::min(tree.probs[i], 1.0f));
    }
    std::vector<int> order(tree.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin() + 1, order.end(),
                     [&](int a, int b) { return reach[a] > reach[b]; });
    if (ranks_.size() < order.size()) ranks_.resize(order.size());
    for (size_t rank = 1; rank < order.size(); ++rank) {
      ranks_[rank].tried += 1;
      ranks_[rank].accepted += std::ranges::find(path, order[rank]) != path.end() ? 1 : 0;
    }
    if (++trees_ % kHalvingPeriod != 0) return;
    for (Rank& rank : ranks_) {
      rank.tried /= 2;
      rank.accepted /= 2;
    }
  }

  // Tokens of a step whose trees have 1, 2, .. `most` nodes, the root included: [most].
  std::vector<double> Tokens(int most) const {
    std::vector<double> tokens = {1};
    double worth = kPrior;
    for (size_t rank = 1; rank < static_cast<size_t>(most); ++rank) {
      const Rank known = rank < ranks_.size() ? ranks_[rank] : Rank{};
      worth = (known.accepted + kPriorTrees * worth) / (known.tried + kPriorTrees);
      tokens.push_back(tokens.back() + worth);
    }
    return tokens;
  }

 private:
  static constexpr double kPrior = 0.5;        // prior of the best node
  static constexpr double kPriorTrees = 4;     // weight of what is assumed
  static constexpr int kHalvingPeriod = 2048;  // trees
  struct Rank {
    double tried = 0;
    double accepted = 0;
  };
  std::vector<Rank> ranks_;
  int64_t trees_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_SIZE_WORTH_H_
