// Acceptance: walks a verified tree with the target's choices.
//
// AcceptMatch is the default and lossless: at each node the target chooses its own next token
// (argmax or seeded draw) and the walk goes on only if a child carries it. So the text does not
// depend on what was drafted. The other two are options: thresholds trade exactness for length,
// rejection needs drafts drawn at random and gives up the seed's text, not the distribution.
#ifndef TALON_SPEC_VERIFY_ACCEPT_H_
#define TALON_SPEC_VERIFY_ACCEPT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/sampling/sampler.h"
#include "spec/token_tree.h"

namespace talon {

// The target's answers for the rows of one tree. `path` holds the tokens after the root down to the
// node. A row may be asked once. Only rows along the accepted path are asked.
class TreeRows {
 public:
  virtual ~TreeRows() = default;
  virtual Choice Choose(int node, std::span<const int32_t> path) = 0;
  // The distribution after all processors; false if everything is masked.
  virtual bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) = 0;
};

struct Acceptance {
  std::vector<int32_t> path;    // accepted nodes: root, a1 .. aj
  std::vector<Choice> choices;  // [path.size()] the token after each of them; the last is the bonus
  bool dead_end = false;        // the last choice has no token
};

enum class AcceptMode { kMatch, kThreshold, kRejection };

struct AcceptThresholds {
  float single = 1.0f;
  float acc = 1.0f;
  bool lossy() const { return single < 1.0f || acc < 1.0f; }
};

Acceptance AcceptMatch(const TokenTree& tree, TreeRows& rows);

// `sampler` gives the keys of coins (stream 2) and residual draws (stream 3).
Acceptance AcceptThreshold(const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler,
                           const AcceptThresholds& thresholds);

// Children are tested in order against the remaining distribution. A child whose draw is missing or
// invalid counts as certain (q = 1 on itself), which has the distribution of AcceptMatch.
Acceptance AcceptRejection(const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler);

}  // namespace talon

#endif  // TALON_SPEC_VERIFY_ACCEPT_H_
