// The "added_tokens" of tokenizer.json: tokens found in the text before anything else happens to
// it, such as <|eot_id|>. Those marked "normalized" are looked for after the normalizer has run, in
// the form it gives them; the others in the text as it came.
//
// Immutable after Parse(); thread-safe.
#ifndef TALON_TEXT_TOKENIZER_ADDED_TOKENS_H_
#define TALON_TEXT_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/regex/regex.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizer.h"

namespace talon {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character adjoins
  bool lstrip = false;       // takes the blanks before it
  bool rstrip = false;       // takes the blanks after it
  bool normalized = false;
  bool special = false;  // left out of decoded text on request
};

class AddedTokens {
 public:
  // A part of a text: an added token, or (token null) what lies between them.
  struct Part {
    const AddedToken* token = nullptr;
    TextSpan span;
  };

  AddedTokens() = default;
  static Result<AddedTokens> Parse(const Json& value, const Normalizer& normalizer,
                                   const std::string& where);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // Cuts a text at its added tokens: leftmost first, the longest among those.
  // `normalized` says which tokens to look for. REQUIRES: valid UTF-8.
  std::vector<Part> Split(std::string_view text, bool normalized) const;

 private:
  Status Add(const Json& value, const Normalizer& normalizer, const std::string& where);

  std::vector<AddedToken> tokens_;
  ByteTrie plain_;
  ByteTrie normalized_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_ADDED_TOKENS_H_
