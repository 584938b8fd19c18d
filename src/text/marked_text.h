// Text in which some spellings of tokens are only text.
#ifndef TALON_TEXT_MARKED_TEXT_H_
#define TALON_TEXT_MARKED_TEXT_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace talon {

// Wherever `mark` stands, inside of a token's spelling, it keeps the tokenizer from seeing the
// token. The marks are not part of the text.
struct MarkedText {
  std::string text;
  std::string mark;  // one character that does not occur otherwise; empty: nothing is marked
};

inline void RemoveMarks(std::string_view mark, std::string* text) {
  if (mark.empty() || text->find(mark) == std::string::npos) return;
  std::string kept;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find(mark, begin), text->size());
    kept.append(*text, begin, end - begin);
    begin = end + mark.size();
  }
  *text = std::move(kept);
}

}  // namespace talon

#endif  // TALON_TEXT_MARKED_TEXT_H_
