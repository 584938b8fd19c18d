#include "kv/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace talon {

int32_t PrefixIndex::Find(int32_t parent, std::span<const int32_t> tokens) const {
  const auto at = blocks_.find({parent, {tokens.begin(), tokens.end()}});
  return at == blocks_.end() ? kNone : at->second;
}

int32_t PrefixIndex::FindBeginning(int32_t parent, std::span<const int32_t> tokens) const {
  const auto at = blocks_.lower_bound({parent, {tokens.begin(), tokens.end()}});
  if (at == blocks_.end() || at->first.first != parent) return kNone;
  const std::vector<int32_t>& found = at->first.second;
  const bool begins =
      found.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), found.begin());
  return begins ? at->second : kNone;
}

void PrefixIndex::Insert(int32_t parent, std::span<const int32_t> tokens, int32_t block) {
  const auto [at, is_new] = blocks_.insert({{parent, {tokens.begin(), tokens.end()}}, block});
  TALON_CHECK(is_new && places_.count(block) == 0, "block {} or its tokens are known", block);
  places_[block] = at;
}

void PrefixIndex::Remove(int32_t block) {
  const auto at = places_.find(block);
  if (at == places_.end()) return;
  blocks_.erase(at->second);
  places_.erase(at);
}

}  // namespace talon
