// The bytes of a vocabulary as a prefix tree, in slices, for masks.
//
// Tokens of plain characters (anything that a JSON string holds unescaped) are most of a vocabulary
// and mostly allowed or forbidden together. They are kept in slices by length, each with its mask,
// so that a state that allows all plain text sets them at once. What is left is walked.
#ifndef TALON_GRAMMAR_TOKEN_TRIE_H_
#define TALON_GRAMMAR_TOKEN_TRIE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/math.h"
#include "grammar/code_points.h"

namespace talon {

// One bit for each token.
class TokenMask {
 public:
  TokenMask() = default;
  explicit TokenMask(int size) : words_(CeilDiv(static_cast<size_t>(size), 64), 0) {}
  void Set(int32_t token) { words_[token >> 6] |= uint64_t{1} << (token & 63); }
  bool Has(int32_t token) const { return (words_[token >> 6] >> (token & 63)) & 1; }
  void Add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  int Count() const;
  std::span<const uint64_t> words() const { return words_; }
  bool operator==(const TokenMask&) const = default;

 private:
  std::vector<uint64_t> words_;
};

// Bytes that stand for the special token of this spelling. No text has them: kSpecialByte is never
// part of UTF-8, and no other token may have it.
inline constexpr char kSpecialByte = '\xFF';
inline std::string SpecialBytes(std::string_view spelling) {
  return kSpecialByte + std::string(spelling) + kSpecialByte;
}

class TokenTrie {
 public:
  // Nodes in preorder. A node's subtree ends before `end`.
  struct Node {
    uint8_t byte = 0;
    int32_t depth = 0;
    int32_t end = 0;
    int32_t first_token = 0;  // tokens that end here: tokens[first_token, next node's first_token)
  };
  struct Slice {
    int most_characters = 0;  // longest plain text; 0: other text, always walked
    TokenMask mask;
    std::vector<Node> nodes;  // with a last one that only ends the others
    std::vector<int32_t> tokens;
    int deepest = 0;
  };

  // `bytes` of each token; empty: never allowed. A special token has those of SpecialBytes().
  explicit TokenTrie(std::vector<std::string> bytes);

  int vocabulary() const { return static_cast<int>(bytes_.size()); }
  // Empty for ids beyond the vocabulary, which models with padded embeddings have.
  const std::string& bytes(int32_t token) const {
    static const std::string kNone;
    return token >= 0 && token < vocabulary() ? bytes_[token] : kNone;
  }
  const std::vector<Slice>& slices() const { return slices_; }
  // The token of these bytes, -1 if there is none.
  int32_t Find(std::string_view bytes) const;
  // The longest token that begins the text, -1 if none does.
  int32_t LongestPrefix(std::string_view text) const;

  // Characters of plain text.
  static const CodePoints& PlainCharacters();

 private:
  Slice MakeSlice(std::vector<int32_t> tokens, int most_characters) const;

  std::vector<std::string> bytes_;
  std::vector<Slice> slices_;
  std::vector<int32_t> sorted_;  // tokens by their bytes
};

}  // namespace talon

#endif  // TALON_GRAMMAR_TOKEN_TRIE_H_
