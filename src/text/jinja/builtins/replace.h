// str.replace, which is a filter and a method.
#ifndef TALON_TEXT_JINJA_BUILTINS_REPLACE_H_
#define TALON_TEXT_JINJA_BUILTINS_REPLACE_H_

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace talon::jinja {

struct Replacement {
  std::string_view text;
  std::string_view old_text;  // empty: between all characters
  std::string_view new_text;
};
// The first `count` occurrences, all if negative.
Result<Value> ReplaceText(Runtime& runtime, const Replacement& replacement, int64_t count);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_BUILTINS_REPLACE_H_
