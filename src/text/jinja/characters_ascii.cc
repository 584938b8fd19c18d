// For a build without utf8proc: only ASCII has a case, and every character outside it is printable.
#include "text/jinja/characters.h"

namespace talon::jinja {

char32_t ToUpper(char32_t c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; }
char32_t ToLower(char32_t c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; }
bool IsLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsPrintable(char32_t c) { return c >= 0x20 && c != 0x7F; }

}  // namespace talon::jinja
