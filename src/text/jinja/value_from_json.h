// JSON, as messages and tools come in, as a value of a template.
#ifndef TALON_TEXT_JINJA_VALUE_FROM_JSON_H_
#define TALON_TEXT_JINJA_VALUE_FROM_JSON_H_

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Fails on invalid UTF-8, integers beyond int64 and deep nesting.
Result<Value> ValueFromJson(const OrderedJson& json);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_VALUE_FROM_JSON_H_
