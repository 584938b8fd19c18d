// The "pre_tokenizer" of tokenizer.json: cuts text into words, inside which tokens are formed.
// Immutable after Parse(); thread-safe.
#ifndef TALON_TEXT_TOKENIZER_PRE_TOKENIZER_H_
#define TALON_TEXT_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/regex/regex.h"

namespace talon {

// Text and the words it is cut into, in order. Words may leave out parts of the text.
struct WordList {
  struct Word {
    TextSpan span;
    bool starts_input = false;  // begins where the whole input begins
  };
  std::string text;
  std::vector<Word> words;  // none empty

  std::string_view WordText(const Word& word) const {
    return std::string_view(text).substr(word.span.begin, word.span.size());
  }
};

// One step; see pre_tokenizer.cc for the kinds.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual Status Apply(WordList* list) const = 0;
};

class PreTokenizer {
 public:
  // Leaves words as they are.
  PreTokenizer() = default;
  // Kinds: ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit.
  static Result<PreTokenizer> Parse(const Json& value, const std::string& where);

  // REQUIRES: valid UTF-8; stays so.
  Status Apply(WordList* list) const;

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_PRE_TOKENIZER_H_
