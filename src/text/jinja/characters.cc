#include "text/jinja/characters.h"

#include "text/unicode.h"

namespace talon::jinja {
namespace {

bool InSet(std::string_view character, const std::string* chars) {
  if (chars != nullptr) return chars->find(character) != std::string::npos;
  size_t offset = 0;
  return IsPythonSpace(NextCodePoint(character, &offset));
}

// The first letter of each word (or of the text only) in upper case, all others in lower case.
std::string UpperFirst(std::string_view text, bool each_word) {
  std::string out;
  bool first = true;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    AppendUtf8(first ? ToUpper(c) : ToLower(c), &out);
    first = each_word && !IsLetter(c);
  }
  return out;
}

}  // namespace

bool IsPythonSpace(char32_t c) { return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F); }

std::string Upper(std::string_view text) {
  std::string out;
  for (size_t offset = 0; offset < text.size();) {
    AppendUtf8(ToUpper(NextCodePoint(text, &offset)), &out);
  }
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  for (size_t offset = 0; offset < text.size();) {
    AppendUtf8(ToLower(NextCodePoint(text, &offset)), &out);
  }
  return out;
}

std::string Title(std::string_view text) { return UpperFirst(text, /*each_word=*/true); }
std::string Capitalize(std::string_view text) { return UpperFirst(text, /*each_word=*/false); }

std::string_view Strip(std::string_view text, const std::string* chars, StripEnds ends) {
  while (ends.left && !text.empty()) {
    size_t end = 0;
    NextCodePoint(text, &end);
    if (!InSet(text.substr(0, end), chars)) break;
    text.remove_prefix(end);
  }
  while (ends.right && !text.empty()) {
    const size_t start = PreviousCharacter(text, text.size());
    if (!InSet(text.substr(start), chars)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace talon::jinja
