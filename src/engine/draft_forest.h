// Drafts as they travel (a forest, without the token they follow) and as the engine has them (a
// tree, whose root is that token).
#ifndef TALON_ENGINE_DRAFT_FOREST_H_
#define TALON_ENGINE_DRAFT_FOREST_H_

#include "engine/remote_calls.h"
#include "spec/token_tree.h"

namespace talon {

// REQUIRES: `forest` has parents before children and one prob per token.
inline TokenTree TreeOfForest(int32_t root, const DraftForest& forest) {
  TokenTree tree(root);
  for (int i = 0; i < forest.size(); ++i) {
    tree.Add(forest.parents[i] + 1, forest.tokens[i], forest.probs[i]);
  }
  if (!forest.draws.empty()) {
    tree.draws.assign(1, {});
    tree.draws.insert(tree.draws.end(), forest.draws.begin(), forest.draws.end());
  }
  return tree;
}

inline DraftForest ForestOfTree(const TokenTree& tree) {
  DraftForest forest;
  forest.tokens.assign(tree.tokens.begin() + 1, tree.tokens.end());
  forest.probs.assign(tree.probs.begin() + 1, tree.probs.end());
  for (int i = 1; i < tree.size(); ++i) forest.parents.push_back(tree.parents[i] - 1);
  if (!tree.draws.empty()) forest.draws.assign(tree.draws.begin() + 1, tree.draws.end());
  return forest;
}

}  // namespace talon

#endif  // TALON_ENGINE_DRAFT_FOREST_H_
