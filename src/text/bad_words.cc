#include "text/bad_words.h"

#include <utility>

namespace talon {

Result<std::vector<std::vector<int32_t>>> EncodeBadWords(std::span<const std::string> words,
                                                         const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> banned;
  for (const std::string& word : words) {
    TALON_ASSIGN_OR_RETURN(auto tokens, tokenizer.Encode(word, /*add_special_tokens=*/false));
    banned.push_back(std::move(tokens));
    if (word.front() == ' ') continue;
    TALON_ASSIGN_OR_RETURN(auto after_space, tokenizer.Encode(" " + word, false));
    banned.push_back(std::move(after_space));
  }
  return banned;
}

}  // namespace talon
