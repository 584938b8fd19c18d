// Template source to statements. Everything this interpreter does not know (tags, filters, tests,
// functions, methods) is an error here, with its line: never a wrong prompt later.
#ifndef TALON_TEXT_JINJA_PARSER_H_
#define TALON_TEXT_JINJA_PARSER_H_

#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace talon::jinja {

inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;

// Errors are "line 12: unknown filter 'foo'".
Result<Block> ParseTemplate(std::string_view source);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_PARSER_H_
