// A set of texts, each with a number, that is searched for those at one place of a text.
#ifndef TALON_TEXT_TOKENIZER_BYTE_TRIE_H_
#define TALON_TEXT_TOKENIZER_BYTE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/flat_map.h"

namespace talon {

// A tree of bytes; node 0 is the root. Thread-safe for concurrent readers without a writer.
class ByteTrie {
 public:
  void Insert(std::string_view key, int32_t value);
  // The value of the longest key at the front of `text`; -1 if none. *length is the key's.
  int32_t LongestAt(std::string_view text, size_t* length) const;
  // Whether some key begins with all of `text`.
  bool HasPrefix(std::string_view text) const;
  bool empty() const { return value_at_.size() == 1; }
  size_t size() const { return value_at_.size(); }

 private:
  FlatMap<int32_t> children_;             // by node and byte
  std::vector<int32_t> value_at_ = {-1};  // by node
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_BYTE_TRIE_H_
