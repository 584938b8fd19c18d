// The escapes of a string literal.
#ifndef TALON_TEXT_JINJA_STRING_LITERAL_H_
#define TALON_TEXT_JINJA_STRING_LITERAL_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace talon::jinja {

// `body` is what stands between the quotes. Python's escapes; an unknown one keeps its backslash.
Result<std::string> Unescape(std::string_view body);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_STRING_LITERAL_H_
