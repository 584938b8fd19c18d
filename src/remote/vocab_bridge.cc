#include "remote/vocab_bridge.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace talon {
namespace {

// The key that identifies a token in both vocabularies: the name of a special token, the bytes of
// others. Empty: no such token.
std::string KeyOf(const Tokenizer& tokenizer, int32_t id) {
  const auto spelled = tokenizer.Token(id);
  if (!spelled) return {};
  if (tokenizer.IsSpecial(id)) return "special " + std::string(*spelled);
  const std::string bytes = tokenizer.TokenBytes(id);
  return bytes.empty() ? std::string() : "bytes " + bytes;
}

// For each token of `from` the first of `to` with the same key, or -1.
std::vector<int32_t> MapTokens(const Tokenizer& from, const Tokenizer& to) {
  std::unordered_map<std::string, int32_t> by_key;
  for (int32_t id = 0; id < to.vocab_size(); ++id) {
    std::string key = KeyOf(to, id);
    if (!key.empty()) by_key.emplace(std::move(key), id);
  }
  std::vector<int32_t> map(from.vocab_size(), -1);
  for (int32_t id = 0; id < from.vocab_size(); ++id) {
    // The same id where it fits, so that tokens of equal bytes keep theirs.
    const std::string key = KeyOf(from, id);
    if (key.empty()) continue;
    const auto at = by_key.find(key);
    if (at != by_key.end()) map[id] = KeyOf(to, id) == key ? id : at->second;
  }
  return map;
}

bool IsIdentity(const Tokenizer& a, const Tokenizer& b) {
  if (a.vocab_size() != b.vocab_size()) return false;
  for (int32_t id = 0; id < a.vocab_size(); ++id) {
    if (a.Token(id) != b.Token(id) || a.IsSpecial(id) != b.IsSpecial(id)) return false;
  }
  return true;
}

Status CheckStrictly(const Tokenizer& target, const Tokenizer& draft) {
  if (target.vocab_size() != draft.vocab_size()) {
    return InvalidArgument(
        "vocabulary: the draft model has {} tokens, the target {} (strict_vocab_check)",
        draft.vocab_size(), target.vocab_size());
  }
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    if (!target.IsSpecial(id) && !draft.IsSpecial(id)) continue;
    if (target.IsSpecial(id) == draft.IsSpecial(id) && target.Token(id) == draft.Token(id)) {
      continue;
    }
    return InvalidArgument(
        "vocabulary: token {} is '{}' for the draft model and '{}' for the target, one of them "
        "special (strict_vocab_check)",
        id, draft.Token(id).value_or(""), target.Token(id).value_or(""));
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<VocabBridge>> VocabBridge::Build(const Tokenizer* target,
                                                        std::unique_ptr<Tokenizer> draft,
                                                        bool strict) {
  if (strict) TALON_RETURN_IF_ERROR(CheckStrictly(*target, *draft));
  std::unique_ptr<VocabBridge> bridge(new VocabBridge(target, std::move(draft)));
  bridge->identity_ = IsIdentity(*target, *bridge->draft_);
  bridge->to_target_ = MapTokens(*bridge->draft_, *target);
  bridge->to_draft_ = MapTokens(*target, *bridge->draft_);
  return bridge;
}

Result<std::vector<int32_t>> VocabBridge::ContextForDraft(
    std::span<const int32_t> target_tokens) const {
  if (identity_) return std::vector<int32_t>(target_tokens.begin(), target_tokens.end());
  std::vector<int32_t> tokens;
  tokens.reserve(target_tokens.size());
  for (const int32_t token : target_tokens) {
    const int32_t id = ToDraft(token);
    if (id < 0) {
      const std::string text = target_->Decode(target_tokens, /*skip_special_tokens=*/false);
      return draft_->Encode(text, /*add_special_tokens=*/false);
    }
    tokens.push_back(id);
  }
  return tokens;
}

// Empty if an entry has no counterpart, or two entries have the same one.
DraftProbs VocabBridge::DrawForTarget(const DraftProbs& draw) const {
  DraftProbs out;
  for (const auto& [token, probability] : draw.entries) {
    const int32_t id = ToTarget(token);
    if (id < 0) return {};
    out.entries.emplace_back(id, probability);
  }
  std::ranges::sort(out.entries);
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  const bool repeats = std::ranges::adjacent_find(out.entries, same) != out.entries.end();
  return repeats ? DraftProbs{} : out;
}

DraftForest VocabBridge::ForTarget(const DraftForest& drafts) const {
  if (identity_) return drafts;
  constexpr int kCut = -2;
  DraftForest out;
  std::vector<int> place(drafts.tokens.size(), kCut);  // in `out`
  std::map<std::pair<int, int32_t>, int> seen;         // (parent in `out`, token) -> node
  for (int i = 0; i < drafts.size(); ++i) {
    const int parent = drafts.parents[i] < 0 ? -1 : place[drafts.parents[i]];
    const int32_t token = ToTarget(drafts.tokens[i]);
    if (parent == kCut || token < 0) continue;
    const auto [at, is_new] = seen.emplace(std::pair{parent, token}, out.size());
    place[i] = at->second;
    if (!is_new) {
      if (!out.draws.empty()) out.draws[at->second] = {};
      continue;
    }
    out.tokens.push_back(token);
    out.parents.push_back(parent);
    out.probs.push_back(drafts.probs[i]);
    if (!drafts.draws.empty()) out.draws.push_back(DrawForTarget(drafts.draws[i]));
  }
  return out;
}

}  // namespace talon
