#include "spec/grammar_drafter.h"

#include <algorithm>

namespace talon {
namespace {

// How often the target cuts forced bytes as a longest match does; less where they end, as a token
// may go on into what is free.
constexpr float kInside = 0.9f;
constexpr float kAtEnd = 0.5f;

}  // namespace

void GrammarDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    if (request.grammar == nullptr) continue;
    const int most = std::min(request.budget.max_nodes - 1, request.budget.max_depth);
    int node = 0;
    for (const auto& [token, last] : request.grammar->ForcedTokens(request.grammar_state, most)) {
      node = trees[i].Add(node, token, last ? kAtEnd : kInside);
    }
  }
}

}  // namespace talon
