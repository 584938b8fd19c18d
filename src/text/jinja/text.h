// Values as text: Python's str() and repr(), and the JSON of transformers' `tojson`.
#ifndef TALON_TEXT_JINJA_TEXT_H_
#define TALON_TEXT_JINJA_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// The text of {{ value }}. Undefined is "". Namespaces and callables are an error: Python's
// <function ...> does not belong in a prompt.
Result<std::string> ToText(const Value& value);
// As inside a printed list: strings have quotes.
Result<std::string> Repr(const Value& value);
// 1.0, 0.1, 1e+16, inf: the shortest digits that read back as the same number.
std::string FloatText(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<int64_t> indent;  // REQUIRES: 0 to 64
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Like json.dumps. Fails on undefined values, namespaces and callables.
Result<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_TEXT_H_
