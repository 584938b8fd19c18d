#include "grammar/cursor.h"

#include <algorithm>
#include <limits>

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

void GrammarCursor::Mask(Matcher::StateId state, std::span<const int32_t> ends,
                         std::span<float> logits) const {
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<int32_t, float>> kept;  // the same end may be there twice
  for (const int32_t end : ends) {
    if (end >= 0 && static_cast<size_t>(end) < logits.size()) kept.push_back({end, logits[end]});
  }
  for (const auto& [end, logit] : kept) logits[end] = kForbidden;
  const std::span<const uint64_t> words = matcher_->Allowed(state).words();
  for (size_t first = 0; first < logits.size(); first += 64) {
    const uint64_t allowed = first / 64 < words.size() ? words[first / 64] : 0;
    if (allowed == ~uint64_t{0}) continue;
    const size_t count = std::min<size_t>(64, logits.size() - first);
    for (size_t i = 0; i < count; ++i) {
      if ((allowed >> i & 1) == 0) logits[first + i] = kForbidden;
    }
  }
  if (!Accepts(state)) return;
  for (const auto& [end, logit] : kept) logits[end] = logit;
}

}  // namespace talon
