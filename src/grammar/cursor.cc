#include "grammar/cursor.h"

#include <algorithm>

namespace talon {

Matcher::StateId GrammarCursor::After(std::span<const int32_t> answer,
                                      std::span<const int32_t> path) const {
  const size_t known =
      static_cast<size_t>(std::ranges::mismatch(tokens_, answer).in1 - tokens_.begin());
  tokens_.resize(known);
  states_.resize(known);
  for (size_t i = known; i < answer.size(); ++i) {
    const Matcher::StateId before = i == 0 ? matcher_->start() : states_[i - 1];
    tokens_.push_back(answer[i]);
    states_.push_back(matcher_->Next(before, answer[i]));
  }
  Matcher::StateId state = states_.empty() ? matcher_->start() : states_.back();
  for (const int32_t token : path) state = matcher_->Next(state, token);
  return state;
}

std::vector<Matcher::StateId> GrammarCursor::OfNodes(Matcher::StateId root,
                                                     std::span<const int32_t> tokens,
                                                     std::span<const int32_t> parents) const {
  std::vector<Matcher::StateId> states = {root};
  for (size_t i = 1; i < tokens.size(); ++i) states.push_back(Next(states[parents[i]], tokens[i]));
  return states;
}

void GrammarCursor::Allowed(Matcher::StateId state, std::span<const int32_t> ends,
                            std::span<uint64_t> bits) const {
  const std::span<const uint64_t> words = matcher_->Allowed(state).words();
  const size_t known = std::min(words.size(), bits.size());
  std::copy_n(words.begin(), known, bits.begin());
  std::ranges::fill(bits.subspan(known), 0);
  const bool may_end = Accepts(state);
  for (const int32_t end : ends) {
    if (end < 0 || static_cast<size_t>(end) / 64 >= bits.size()) continue;
    const uint64_t bit = uint64_t{1} << (end % 64);
    uint64_t& word = bits[end / 64];
    word = may_end ? word | bit : word & ~bit;
  }
}

}  // namespace talon
