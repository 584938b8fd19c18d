// From a regular expression to an expression over bytes.
#ifndef TALON_GRAMMAR_REGEX_H_
#define TALON_GRAMMAR_REGEX_H_

#include <functional>
#include <string_view>

#include "base/status.h"
#include "grammar/code_points.h"
#include "grammar/expr.h"

namespace talon {

// How one character of a set is written: as UTF-8, or inside a JSON string.
using CharacterWriter = std::function<ExprId(const CodePoints&)>;

// Strings that match as a whole, as UTF-8; anchors at the ends mean nothing.
Result<ExprId> CompileRegex(std::string_view source, ExprPool* pool);

// Strings that have a match anywhere (JSON Schema's "pattern"), in characters as `writer` writes
// them. Anchors are understood at the ends of alternatives.
Result<ExprId> CompilePattern(std::string_view source, const CharacterWriter& writer,
                              ExprPool* pool);

}  // namespace talon

#endif  // TALON_GRAMMAR_REGEX_H_
