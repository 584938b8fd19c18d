// Acceptance of drafts by a table instead of a model: how many drafts of a step are right is drawn,
// and with partial verification how many provisional tokens a full pass confirms.
#ifndef TALON_APPS_BENCH_ACCEPTANCE_H_
#define TALON_APPS_BENCH_ACCEPTANCE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "spec/token_tree.h"

namespace talon {

// Draws from its own generator. Used by the engine's thread.
class DrawnAcceptance {
 public:
  // by_depth[d - 1]: the probability that some node at depth d is right, given that one at depth
  // d - 1 was.
  // agreement[i]: the probability that a full pass confirms a provisional token whose distance from
  // the last one is in [2^i, 2^(i+1)), given that it confirmed those before; the last value holds
  // for all that are farther, and none: all are confirmed.
  DrawnAcceptance(std::vector<double> by_depth, std::vector<double> agreement, uint64_t seed)
      : by_depth_(std::move(by_depth)), agreement_(std::move(agreement)), seed_(seed) {}

  // Tokens of a step on average: 1 + a1 + a1 a2 + ...
  double ExpectedTau() const;

  // Makes choices[i], those of the target for node i, accept as many nodes of the tree's longest
  // path as are drawn and none after them (EditChoices). The first `trunk` nodes below the root are
  // provisional tokens.
  void Edit(const TokenTree& tree, int trunk, std::span<int32_t> choices);
  // Draws of more nodes than the tree had on its longest path.
  int64_t cut_short() const { return cut_short_; }

 private:
  int Draw();
  // How many of `trunk` provisional tokens are confirmed.
  int DrawConfirmed(int trunk);

  std::vector<double> by_depth_;
  std::vector<double> agreement_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  int64_t cut_short_ = 0;
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_ACCEPTANCE_H_
