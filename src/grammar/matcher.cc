#include "grammar/matcher.h"

namespace talon {
namespace {

constexpr size_t kMostMasks = 512;
constexpr size_t kWornStates = 10'000;
constexpr size_t kMostForced = 256;  // bytes that are looked at

}  // namespace

// Grammar::Finish has built the same expression, so that the bytes' classes know it.
Matcher::Matcher(std::unique_ptr<Grammar> grammar, const TokenTrie* trie, Encoder encode)
    : grammar_(std::move(grammar)),
      trie_(*trie),
      encode_(std::move(encode)),
      automaton_(grammar_.get()),
      plain_(Utf8Of(TokenTrie::PlainCharacters(), &grammar_->exprs())) {}

Matcher::StateId Matcher::Next(StateId state, int32_t token) {
  const std::string& bytes = trie_.bytes(token);
  const StateId next = bytes.empty() ? kDead : automaton_.Next(state, bytes);
  NoteWear();
  return next;
}

void Matcher::NoteWear() {
  if (automaton_.size() > kWornStates || exhausted()) worn_.store(true, std::memory_order_relaxed);
}

const TokenMask& Matcher::Allowed(StateId state) {
  if (const auto at = mask_of_.find(state); at != mask_of_.end()) {
    masks_.splice(masks_.begin(), masks_, at->second);
    return masks_.front().second;
  }
  if (masks_.size() >= kMostMasks) {
    mask_of_.erase(masks_.back().first);
    masks_.pop_back();
  }
  masks_.emplace_front(state, Compute(state));
  NoteWear();
  mask_of_[state] = masks_.begin();
  return masks_.front().second;
}

TokenMask Matcher::Compute(StateId state) {
  TokenMask mask(trie_.vocabulary());
  if (state == kDead) return mask;
  const int free = automaton_.FreeLength(state, plain_);
  for (const TokenTrie::Slice& slice : trie_.slices()) {
    if (slice.most_characters > 0 && slice.most_characters <= free) {
      mask.Add(slice.mask);
    } else {
      Walk(state, slice, &mask);
    }
  }
  return mask;
}

void Matcher::Walk(StateId state, const TokenTrie::Slice& slice, TokenMask* mask) {
  path_.resize(static_cast<size_t>(slice.deepest) + 1);
  path_[0] = state;
  const auto last = static_cast<int32_t>(slice.nodes.size()) - 1;
  for (int32_t i = 0; i < last;) {
    const TokenTrie::Node& node = slice.nodes[i];
    const StateId next = automaton_.Next(path_[node.depth - 1], node.byte);
    if (next == kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = next;
    for (int32_t t = node.first_token; t < slice.nodes[i + 1].first_token; ++t) {
      mask->Set(slice.tokens[t]);
    }
    ++i;
  }
}

std::vector<Matcher::ForcedToken> Matcher::ForcedTokens(StateId state, int most) {
  std::vector<ForcedToken> tokens;
  const std::string bytes = Forced(state, kMostForced);
  std::string_view rest = bytes;
  while (!rest.empty() && static_cast<int>(tokens.size()) < most) {
    const size_t before = tokens.size();
    for (const int32_t token : Tokens(rest)) {
      if (static_cast<int>(tokens.size()) == most || !rest.starts_with(trie_.bytes(token))) break;
      rest.remove_prefix(trie_.bytes(token).size());
      tokens.push_back({.token = token, .last = rest.empty()});
    }
    if (tokens.size() == before) break;
  }
  return tokens;
}

// What `bytes` begin with: a special token, or the text before one.
std::vector<int32_t> Matcher::Tokens(std::string_view bytes) const {
  const std::string text(bytes.substr(0, bytes.find(kSpecialByte)));
  if (encode_ && !text.empty()) {
    std::vector<int32_t> tokens = encode_(text);
    const bool same = !tokens.empty() && !trie_.bytes(tokens[0]).empty() &&
                      text.starts_with(trie_.bytes(tokens[0]));
    if (same) return tokens;
  }
  const int32_t longest = trie_.LongestPrefix(bytes);
  return longest < 0 ? std::vector<int32_t>() : std::vector<int32_t>{longest};
}

std::string Matcher::Forced(StateId state, size_t most) {
  std::string bytes;
  while (bytes.size() < most) {
    const auto byte = automaton_.OnlyByte(state);
    if (!byte) break;
    bytes.push_back(static_cast<char>(*byte));
    state = automaton_.Next(state, *byte);
  }
  return bytes;
}

}  // namespace talon
