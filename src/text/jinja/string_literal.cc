#include "text/jinja/string_literal.h"

#include <charconv>

#include "text/unicode.h"

namespace talon::jinja {
namespace {

// Pairs: the letter after the backslash, and what it stands for.
constexpr std::string_view kSimpleEscapes = "n\nt\tr\r\\\\''\"\"a\ab\bf\fv\v";

// \xhh, \uhhhh or \Uhhhhhhhh: the number of digits that must follow, 0 for another escape.
size_t HexDigits(char letter) {
  return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
}

Status AppendCodePoint(uint32_t code, std::string* out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    return InvalidArgument("a string has an escape for U+{:04X}, which is no character", code);
  }
  AppendUtf8(code, out);
  return OkStatus();
}

// Up to `max_digits` digits in `base` from *offset on, which moves past them.
uint32_t ReadDigits(std::string_view body, int base, size_t max_digits, size_t* offset) {
  uint32_t code = 0;
  const std::string_view digits = body.substr(*offset, max_digits);
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, base).ptr;
  *offset += static_cast<size_t>(end - digits.data());
  return code;
}

// *offset is at the character after the backslash.
Status AppendEscape(std::string_view body, size_t* offset, std::string* out) {
  const char letter = body[*offset];
  for (size_t i = 0; i < kSimpleEscapes.size(); i += 2) {
    if (letter != kSimpleEscapes[i]) continue;
    *out += kSimpleEscapes[i + 1];
    ++*offset;
    return OkStatus();
  }
  if (letter == '\n') {  // a continued line
    ++*offset;
    return OkStatus();
  }
  if (letter >= '0' && letter <= '7') return AppendCodePoint(ReadDigits(body, 8, 3, offset), out);
  if (letter == 'N') return InvalidArgument("\\N{{...}} in a string is not supported");
  if (const size_t count = HexDigits(letter)) {
    const size_t start = ++*offset;
    const uint32_t code = ReadDigits(body, 16, count, offset);
    if (*offset != start + count) {
      return InvalidArgument("\\{} in a string needs {} hexadecimal digits", letter, count);
    }
    return AppendCodePoint(code, out);
  }
  *out += '\\';
  return OkStatus();
}

}  // namespace

Result<std::string> Unescape(std::string_view body) {
  std::string out;
  for (size_t offset = 0; offset < body.size();) {
    if (body[offset] != '\\' || offset + 1 == body.size()) {
      out += body[offset++];
      continue;
    }
    ++offset;
    TALON_RETURN_IF_ERROR(AppendEscape(body, &offset, &out));
  }
  return out;
}

}  // namespace talon::jinja
