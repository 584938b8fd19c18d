// UTF-8 and the few Unicode properties that tokenizers ask for. Pure functions, thread-safe.
#ifndef TALON_TEXT_UNICODE_H_
#define TALON_TEXT_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace talon {

// What stands at the front of some bytes: one whole character, the beginning of one that needs more
// bytes, or bytes that no valid text holds (`length` of them: a maximal subpart, so that each such
// run counts as one replacement character, as in the WHATWG and Rust decoders).
struct Utf8Front {
  enum Kind { kComplete, kTruncated, kInvalid };
  Kind kind;
  int length;
};
// REQUIRES: !bytes.empty()
Utf8Front InspectUtf8(std::string_view bytes);

// The offset of the first byte that is not valid UTF-8, if any.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// REQUIRES: `text` is valid UTF-8 and *offset is at a character. Advances *offset past it.
char32_t NextCodePoint(std::string_view text, size_t* offset);
// The offset of the character that ends at `end`. REQUIRES: valid UTF-8, end > 0.
size_t PreviousCharacter(std::string_view text, size_t end);
void AppendUtf8(char32_t code_point, std::string* out);
// The only character of `text`, or nothing if it has none or several.
std::optional<char32_t> SingleCodePoint(std::string_view text);

// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool IsWhitespace(char32_t c);     // White_Space
bool IsWordCharacter(char32_t c);  // \w of UTS 18: alphabetic, marks, digits, connectors, joiners

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: valid UTF-8. Time O(n log n) whatever the order of combining marks.
std::string NormalizeUnicode(std::string_view text, NormalForm form);
// Character by character with Unicode's unconditional mappings, without context.
std::string LowercaseUnicode(std::string_view text);

}  // namespace talon

#endif  // TALON_TEXT_UNICODE_H_
