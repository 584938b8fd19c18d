// Patterns in tokenizer.json are written for Oniguruma (the engine of the Hugging Face library);
// here they run on PCRE2. The two read nearly the same syntax; this rewrites what differs:
//   \s \S \w \W \b \B   Unicode's White_Space and word characters (PCRE2's \s has U+180E, its \w
//                       lacks marks)
//   \h \H \v \uHHHH     hexadecimal digit, vertical tab, code point
//   {,n}  {n,m}+        an interval from 0; a repeated interval, not a possessive one
//   (?m)                the dot matches newlines
//   [[:alpha:]] ...     by Unicode property
// What PCRE2 has no equal for (nested classes, &&, \W in a class) is an error.
#ifndef TALON_TEXT_REGEX_ONIGURUMA_H_
#define TALON_TEXT_REGEX_ONIGURUMA_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace talon {

// REQUIRES: `pattern` is valid UTF-8. A pattern that is wrong in both syntaxes may pass; PCRE2
// reports it.
Result<std::string> PatternFromOniguruma(std::string_view pattern);

}  // namespace talon

#endif  // TALON_TEXT_REGEX_ONIGURUMA_H_
