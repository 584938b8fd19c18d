#include "apps/bench/specpv/forced_text.h"

#include <algorithm>

namespace talon {

void ForcedText::Edit(const TokenTree& tree, std::span<int32_t> choices) {
  agrees_.clear();
  int node = 0;
  for (size_t at = written_; at < text_.size() && node >= 0; ++at) {
    agrees_.push_back(choices[node] == text_[at]);
    choices[node] = text_[at];
    node = tree.FindChild(node, text_[at]);
  }
}

void ForcedText::Update(const RequestUpdate& update) {
  const bool is_partial = update.stats->partial_passes > partial_passes_;
  partial_passes_ = update.stats->partial_passes;
  const size_t emitted = std::min(update.tokens.size(), agrees_.size());
  for (size_t i = 0; i < emitted; ++i) {
    if (is_partial) {
      partial_.Record(++provisional_, agrees_[i]);
    } else if (!agrees_[i]) {
      ++full_disagreed_;
    }
  }
  if (!is_partial) provisional_ = 0;
  written_ += update.tokens.size();
}

}  // namespace talon
