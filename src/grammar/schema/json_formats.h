// The string formats of JSON Schema that are enforced.
#ifndef TALON_GRAMMAR_SCHEMA_JSON_FORMATS_H_
#define TALON_GRAMMAR_SCHEMA_JSON_FORMATS_H_

#include <string_view>

namespace talon {

// A regex for the whole string; empty: the format is not known.
std::string_view JsonFormatRegex(std::string_view format);

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_JSON_FORMATS_H_
