// Texts that an answer must not contain, as the token sequences that spell them.
#ifndef TALON_TEXT_BAD_WORDS_H_
#define TALON_TEXT_BAD_WORDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// A tokenizer spells a word within a sentence with the space before it, so a text is banned with
// and without one; a text that begins with a space means just that.
// REQUIRES: no text is empty.
Result<std::vector<std::vector<int32_t>>> EncodeBadWords(std::span<const std::string> words,
                                                         const Tokenizer& tokenizer);

}  // namespace talon

#endif  // TALON_TEXT_BAD_WORDS_H_
