#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/text.h"

namespace talon::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**", "~"};

Status Unsupported(BinaryOp op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) return InvalidArgument("{}", UndefinedMessage(*side));
  }
  return InvalidArgument("{} {} {} is not supported", left.TypeName(),
                         kSymbols[static_cast<int>(op)], right.TypeName());
}

// With the sign of b, unlike fmod.
double FloorModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Result<Value> FloatArithmetic(BinaryOp op, double a, double b) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) return InvalidArgument("division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSubtract:
      return Value::Float(a - b);
    case BinaryOp::kMultiply:
      return Value::Float(a * b);
    case BinaryOp::kDivide:
      return Value::Float(a / b);
    case BinaryOp::kFloorDivide:
      return Value::Float(std::floor((a - FloorModulo(a, b)) / b + 0.5));
    case BinaryOp::kModulo:
      return Value::Float(FloorModulo(a, b));
    default:
      if (!std::isfinite(std::pow(a, b))) return InvalidArgument("{} ** {} is no number", a, b);
      return Value::Float(std::pow(a, b));
  }
}

Result<Value> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return FloatArithmetic(BinaryOp::kPower, base, exponent);
  if (base >= -1 && base <= 1 && exponent > 2) exponent = 2 - exponent % 2;  // the same, sooner
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) {
      return InvalidArgument("{} ** {} is too large", base, exponent);
    }
  }
  return Value::Int(result);
}

Result<Value> IntArithmetic(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kPower:
      return IntPower(a, b);
    default: {
      if (b == 0) return InvalidArgument("division by zero");
      if (op == BinaryOp::kDivide) return Value::Float(static_cast<double>(a) / b);
      if (b == -1) {  // the one quotient that may overflow
        if (op == BinaryOp::kModulo) return Value::Int(0);
        overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      const bool rounds_up = a % b != 0 && (a < 0) != (b < 0);  // C++ truncates, Python floors
      result = op == BinaryOp::kModulo ? a % b + (rounds_up ? b : 0) : a / b - (rounds_up ? 1 : 0);
    }
  }
  if (overflows)
    return InvalidArgument("{} {} {} is too large", a, kSymbols[static_cast<int>(op)], b);
  return Value::Int(result);
}

Result<Value> Repeat(Runtime& runtime, const Value& what, int64_t times) {
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  const size_t unit = what.is_string() ? what.str().size() : what.items().size() * sizeof(Value);
  if (unit != 0 && count > kMaxValueBytes / unit) {
    return InvalidArgument("a {} repeated {} times is too large", what.TypeName(), times);
  }
  TALON_RETURN_IF_ERROR(runtime.Charge(unit * count));
  if (what.is_string()) {
    std::string text;
    text.reserve(unit * count);
    for (size_t i = 0; unit != 0 && i < count; ++i) text += what.str();
    return Value::String(std::move(text));
  }
  std::vector<Value> items;
  for (size_t i = 0; unit != 0 && i < count; ++i) {
    items.insert(items.end(), what.items().begin(), what.items().end());
  }
  return what.is_list() ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
}

Result<Value> Concatenate(Runtime& runtime, const Value& left, const Value& right) {
  TALON_RETURN_IF_ERROR(runtime.Charge(ExtentOf(left).bytes + ExtentOf(right).bytes));
  TALON_ASSIGN_OR_RETURN(std::string text, ToText(left));
  TALON_ASSIGN_OR_RETURN(const std::string tail, ToText(right));
  return Value::String(std::move(text) + tail);
}

Result<Value> Join(Runtime& runtime, const Value& left, const Value& right) {
  TALON_RETURN_IF_ERROR(
      runtime.Charge((left.items().size() + right.items().size()) * sizeof(Value)));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is_list() ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
}

Result<bool> Contains(Runtime& runtime, const Value& item, const Value& container) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return InvalidArgument("'in <str>' needs a str on its left, not {}", item.TypeName());
    }
    // Searching is slow at worst where both are long.
    const size_t per_character = 1 + item.str().size() / 32;
    TALON_RETURN_IF_ERROR(runtime.Charge(container.str().size() * per_character));
    return container.str().find(item.str()) != std::string::npos;
  }
  if (container.is_dict()) {
    return item.is_string() && container.dict().Find(item.str()) != nullptr;
  }
  TALON_RETURN_IF_ERROR(runtime.Charge(ExtentOf(container).bytes));
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(container));
  for (const Value& candidate : items) {
    if (Equal(item, candidate)) return true;
  }
  return false;
}

size_t EqualityCost(const Value& left, const Value& right) {
  if (left.variant().index() != right.variant().index()) return 0;
  if (left.is_string() && left.str().size() != right.str().size()) return 0;
  return std::min(ExtentOf(left).bytes, ExtentOf(right).bytes);
}

}  // namespace

Result<Value> ApplyUnary(UnaryOp op, const Value& operand) {
  if (op == UnaryOp::kNot) return Value::Bool(!Truthy(operand));
  if (operand.is_undefined()) return InvalidArgument("{}", UndefinedMessage(operand));
  if (!operand.is_number()) {
    return InvalidArgument("a {} has no sign", operand.TypeName());
  }
  const bool negates = op == UnaryOp::kNegate;
  if (operand.is_float()) return Value::Float(negates ? -operand.AsDouble() : operand.AsDouble());
  if (!negates) return Value::Int(operand.AsInt());
  return IntArithmetic(BinaryOp::kSubtract, 0, operand.AsInt());
}

Result<Value> ApplyBinary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kConcat) return Concatenate(runtime, left, right);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) {
      return FloatArithmetic(op, left.AsDouble(), right.AsDouble());
    }
    return IntArithmetic(op, left.AsInt(), right.AsInt());
  }
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string()) return Concatenate(runtime, left, right);
    if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
      return Join(runtime, left, right);
    }
  }
  if (op == BinaryOp::kMultiply) {
    const auto repeats = [](const Value& what, const Value& times) {
      return (what.is_string() || what.is_sequence()) && times.is_number() && !times.is_float();
    };
    if (repeats(left, right)) return Repeat(runtime, left, right.AsInt());
    if (repeats(right, left)) return Repeat(runtime, right, left.AsInt());
  }
  return Unsupported(op, left, right);
}

Result<bool> ApplyComparison(Runtime& runtime, CompareOp op, const Value& left,
                             const Value& right) {
  if (op == CompareOp::kIn) return Contains(runtime, left, right);
  if (op == CompareOp::kNotIn) {
    TALON_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, left, right));
    return !contains;
  }
  if (op == CompareOp::kEqual || op == CompareOp::kNotEqual) {
    TALON_RETURN_IF_ERROR(runtime.Charge(EqualityCost(left, right)));
    return Equal(left, right) == (op == CompareOp::kEqual);
  }
  TALON_RETURN_IF_ERROR(runtime.Charge(std::min(ExtentOf(left).bytes, ExtentOf(right).bytes)));
  if (left.is_number() && right.is_number() &&
      (std::isnan(left.AsDouble()) || std::isnan(right.AsDouble()))) {
    return false;
  }
  TALON_ASSIGN_OR_RETURN(const int order, Compare(left, right));
  switch (op) {
    case CompareOp::kLess:
      return order < 0;
    case CompareOp::kLessEqual:
      return order <= 0;
    case CompareOp::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace talon::jinja
