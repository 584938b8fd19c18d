// The properties of characters that Python's str methods ask for.
#ifndef TALON_TEXT_JINJA_CHARACTERS_H_
#define TALON_TEXT_JINJA_CHARACTERS_H_

#include <string>
#include <string_view>

namespace talon::jinja {

// Character by character, without the few mappings to several characters. In a build without
// utf8proc (which cannot tokenize a prompt either) only ASCII changes.
char32_t ToUpper(char32_t c);
char32_t ToLower(char32_t c);
bool IsLetter(char32_t c);     // has a case
bool IsPrintable(char32_t c);  // stands for itself in repr()

// What str.strip() removes: White_Space and the separators U+001C to U+001F.
bool IsPythonSpace(char32_t c);

// REQUIRES of all: valid UTF-8.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);       // "Hello World"
std::string Capitalize(std::string_view text);  // "Hello world"

// Which ends to strip. `chars` is a set of characters; nullptr means white space.
struct StripEnds {
  bool left = true;
  bool right = true;
};
std::string_view Strip(std::string_view text, const std::string* chars = nullptr,
                       StripEnds ends = {});

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_CHARACTERS_H_
