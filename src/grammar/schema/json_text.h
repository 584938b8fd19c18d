// The lexemes of JSON text.
#ifndef TALON_GRAMMAR_SCHEMA_JSON_TEXT_H_
#define TALON_GRAMMAR_SCHEMA_JSON_TEXT_H_

#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"
#include "grammar/code_points.h"
#include "grammar/expr.h"
#include "grammar/grammar_spec.h"

namespace talon {

// One character of the set as a JSON string has it. There is one spelling of each, but for the case
// of hexadecimal digits: itself, a short escape such as \n, or \u00XX for other control characters.
ExprId JsonCharacter(const CodePoints& set, ExprPool* pool);
// Any string, quotes included.
ExprId JsonString(ExprPool* pool);
ExprId JsonQuoted(ExprId content, ExprPool* pool);
ExprId JsonNumber(ExprPool* pool);
// Where space may be: after an opening bracket or comma and before a closing one, and after a
// colon.
ExprId JsonSpace(JsonSpacing spacing, ExprPool* pool);
ExprId JsonSpaceAfterColon(JsonSpacing spacing, ExprPool* pool);
// A string's JSON, spelt as JsonCharacter does.
std::string JsonSpelling(std::string_view text);

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_JSON_TEXT_H_
