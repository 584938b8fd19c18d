// Drafting ahead: while the target verifies a tree, the drafter already continues its longest path,
// as if it were accepted whole. The first level of that continuation guesses the bonus.
#ifndef TALON_REMOTE_OVERLAP_H_
#define TALON_REMOTE_OVERLAP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/remote_calls.h"

namespace talon {

// Tokens of the longest path, the likelier one of two, then the one that ends at the lower index.
// It ends with the first of `end_tokens` at the latest: nothing follows these.
std::vector<int32_t> LongestPath(const DraftForest& forest, std::span<const int32_t> end_tokens);

// Nodes from the root of the forest that carry `tokens` in order: how many there are.
int MatchedLength(const DraftForest& forest, std::span<const int32_t> tokens);

// What follows the forest's root that carries `token`, as a forest. Empty: nothing.
DraftForest Below(const DraftForest& forest, int32_t token);

// At most `beams` - d children (one at least) of each node of depth d, roots being those of depth
// 0; the first ones stay. Nothing stays below `end_tokens`, outside of the vocabulary,
// or beyond `max_nodes` in all.
struct ForestLimits {
  int beams = 0;  // 0: any number of children
  int max_depth = 64;
  int max_nodes = 0;
  int vocab_size = 0;  // 0: any token
  std::span<const int32_t> end_tokens;
};
DraftForest Prune(const DraftForest& forest, const ForestLimits& limits);

}  // namespace talon

#endif  // TALON_REMOTE_OVERLAP_H_
