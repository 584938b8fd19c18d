// What operators and look-ups do to values, as in Python.
#ifndef TALON_TEXT_JINJA_OPERATORS_H_
#define TALON_TEXT_JINJA_OPERATORS_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace talon::jinja {

Result<Value> ApplyUnary(UnaryOp op, const Value& operand);
Result<Value> ApplyBinary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Result<bool> ApplyComparison(Runtime& runtime, CompareOp op, const Value& left, const Value& right);

// object.name: a method first, then an item; undefined if there is neither.
Result<Value> GetAttribute(const Value& object, const std::string& name);
// object[key]: an item first, then a method.
Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);

struct SliceBounds {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
Result<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_OPERATORS_H_
