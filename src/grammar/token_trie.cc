#include "grammar/token_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string_view>

namespace talon {
namespace {

constexpr std::array<int, 3> kSliceLengths = {8, 24, std::numeric_limits<int>::max()};

// Characters of a token of plain text, 0 if it is not one.
int PlainLength(std::string_view bytes) {
  int length = 0;
  uint32_t point = 0;
  for (size_t at = 0; at < bytes.size(); ++length) {
    if (!DecodeUtf8(bytes, &at, &point)) return 0;
    if (point < 0x20 || point == '"' || point == '\\' || point == 0x7F) return 0;
  }
  return length;
}

}  // namespace

int TokenMask::Count() const {
  int count = 0;
  for (const uint64_t word : words_) count += std::popcount(word);
  return count;
}

const CodePoints& TokenTrie::PlainCharacters() {
  static const CodePoints set =
      CodePoints({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}}).Complement();
  return set;
}

TokenTrie::TokenTrie(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  for (int32_t token = 0; token < vocabulary(); ++token) {
    if (!bytes_[token].empty()) sorted_.push_back(token);
  }
  std::ranges::sort(sorted_, [&](int32_t a, int32_t b) {
    return std::tie(bytes_[a], a) < std::tie(bytes_[b], b);
  });
  std::array<std::vector<int32_t>, kSliceLengths.size() + 1> parts;
  for (const int32_t token : sorted_) {
    const int length = PlainLength(bytes_[token]);
    const auto slice = std::ranges::lower_bound(kSliceLengths, length) - kSliceLengths.begin();
    parts[length == 0 ? kSliceLengths.size() : static_cast<size_t>(slice)].push_back(token);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const int most = i < kSliceLengths.size() ? kSliceLengths[i] : 0;
    if (!parts[i].empty()) slices_.push_back(MakeSlice(std::move(parts[i]), most));
  }
}

// The tokens are sorted by their bytes, so each shares a prefix with the one before it.
TokenTrie::Slice TokenTrie::MakeSlice(std::vector<int32_t> tokens, int most_characters) const {
  Slice slice{.most_characters = most_characters, .mask = TokenMask(vocabulary())};
  std::vector<int32_t> path;  // nodes of the last token
  std::string_view last;
  for (const int32_t token : tokens) {
    slice.mask.Set(token);
    const std::string_view text = bytes_[token];
    size_t shared = 0;
    while (shared < std::min(text.size(), last.size()) && text[shared] == last[shared]) ++shared;
    while (path.size() > shared) {
      slice.nodes[path.back()].end = static_cast<int32_t>(slice.nodes.size());
      path.pop_back();
    }
    while (path.size() < text.size()) {
      path.push_back(static_cast<int32_t>(slice.nodes.size()));
      slice.nodes.push_back({.byte = static_cast<uint8_t>(text[path.size() - 1]),
                             .depth = static_cast<int32_t>(path.size()),
                             .first_token = static_cast<int32_t>(slice.tokens.size())});
    }
    slice.tokens.push_back(token);
    slice.deepest = std::max(slice.deepest, static_cast<int>(text.size()));
    last = text;
  }
  for (const int32_t node : path) slice.nodes[node].end = static_cast<int32_t>(slice.nodes.size());
  slice.nodes.push_back({.first_token = static_cast<int32_t>(slice.tokens.size())});
  return slice;
}

int32_t TokenTrie::Find(std::string_view bytes) const {
  const auto at = std::ranges::lower_bound(
      sorted_, bytes, {}, [&](int32_t token) { return std::string_view(bytes_[token]); });
  return at != sorted_.end() && bytes_[*at] == bytes ? *at : -1;
}

int32_t TokenTrie::LongestPrefix(std::string_view text) const {
  for (size_t length = std::min<size_t>(text.size(), 256); length > 0; --length) {
    if (const int32_t token = Find(text.substr(0, length)); token >= 0) return token;
  }
  return -1;
}

}  // namespace talon
