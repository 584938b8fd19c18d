// GPT-2's spelling of bytes as characters: printable Latin-1 bytes stand for themselves, the others
// for U+0100 onwards, so that every token of a byte-level vocabulary is readable text.
#ifndef TALON_TEXT_TOKENIZER_BYTE_LEVEL_H_
#define TALON_TEXT_TOKENIZER_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace talon {

// Appends one character for every byte.
void AppendByteLevel(std::string_view bytes, std::string* out);

// The bytes that `text` spells, or nothing if some character of it stands for no byte.
// REQUIRES: valid UTF-8.
std::optional<std::string> BytesFromByteLevel(std::string_view text);

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_BYTE_LEVEL_H_
