// Random tokens and proposals for the tests of drafters.
#ifndef TALON_SPEC_DRAFTERS_TEST_DRAFTS_H_
#define TALON_SPEC_DRAFTERS_TEST_DRAFTS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "spec/drafter.h"

namespace talon {

inline std::vector<int32_t> RandomTokens(int count, int vocab, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % vocab);
  return tokens;
}

// What a drafter proposes for sequence 1.
inline TokenTree Propose(Drafter* drafter, const std::vector<int32_t>& tokens,
                         const DraftBudget& budget = {.max_nodes = 12, .max_depth = 16}) {
  const DraftRequest request{.sequence = 1, .tokens = tokens, .budget = budget};
  TokenTree tree(tokens.back());
  drafter->Propose({&request, 1}, {&tree, 1});
  return tree;
}

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_TEST_DRAFTS_H_
