// Tests: what follows `is`.
#include "text/jinja/builtins/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"

namespace talon::jinja {
namespace {

template <bool (*predicate)(const Value&)>
Result<Value> Is(Runtime&, const Value& self, const CallArguments&) {
  return Value::Bool(predicate(self));
}

bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsFalse(const Value& value) { return value.is_bool() && !Truthy(value); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsIterable(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is_undefined();
}
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsTrue(const Value& value) { return value.is_bool() && Truthy(value); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsLowerText(const Value& value) {
  return value.is_string() && Lower(value.str()) == value.str() &&
         Upper(value.str()) != value.str();
}
bool IsUpperText(const Value& value) {
  return value.is_string() && Upper(value.str()) == value.str() &&
         Lower(value.str()) != value.str();
}

template <CompareOp op>
Result<Value> Compares(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const bool holds, ApplyComparison(runtime, op, self, args.positional[0]));
  return Value::Bool(holds);
}

Result<Value> Remainder(Runtime& runtime, const Value& self, const Value& divisor) {
  return ApplyBinary(runtime, BinaryOp::kModulo, self, divisor);
}

template <int expected>
Result<Value> HasParity(Runtime& runtime, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(const Value remainder, Remainder(runtime, self, Value::Int(2)));
  return Value::Bool(Equal(remainder, Value::Int(expected)));
}

Result<Value> DivisibleBy(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const Value remainder, Remainder(runtime, self, args.positional[0]));
  return Value::Bool(Equal(remainder, Value::Int(0)));
}

Builtin Predicate(std::string_view name, BuiltinFunction call, Cost cost = Cost::kConstant) {
  return {.name = name, .call = call, .cost = cost};
}

Builtin WithOperand(std::string_view name, BuiltinFunction call) {
  return {
      .name = name, .call = call, .parameters = {"other"}, .required = 1, .cost = Cost::kConstant};
}

}  // namespace

std::span<const Builtin> Tests() {
  static const std::vector<Builtin> kTable = {
      WithOperand("!=", Compares<CompareOp::kNotEqual>),
      WithOperand("<", Compares<CompareOp::kLess>),
      WithOperand("<=", Compares<CompareOp::kLessEqual>),
      WithOperand("==", Compares<CompareOp::kEqual>),
      WithOperand(">", Compares<CompareOp::kGreater>),
      WithOperand(">=", Compares<CompareOp::kGreaterEqual>),
      Predicate("boolean", Is<IsBoolean>),
      Predicate("callable", Is<IsCallable>),
      Predicate("defined", Is<IsDefined>),
      WithOperand("divisibleby", DivisibleBy),
      WithOperand("eq", Compares<CompareOp::kEqual>),
      WithOperand("equalto", Compares<CompareOp::kEqual>),
      Predicate("even", HasParity<0>),
      Predicate("false", Is<IsFalse>),
      Predicate("float", Is<IsFloat>),
      WithOperand("ge", Compares<CompareOp::kGreaterEqual>),
      WithOperand("greaterthan", Compares<CompareOp::kGreater>),
      WithOperand("gt", Compares<CompareOp::kGreater>),
      WithOperand("in", Compares<CompareOp::kIn>),
      Predicate("integer", Is<IsInteger>),
      Predicate("iterable", Is<IsIterable>),
      WithOperand("le", Compares<CompareOp::kLessEqual>),
      WithOperand("lessthan", Compares<CompareOp::kLess>),
      Predicate("lower", Is<IsLowerText>, Cost::kShallow),
      WithOperand("lt", Compares<CompareOp::kLess>),
      Predicate("mapping", Is<IsMapping>),
      WithOperand("ne", Compares<CompareOp::kNotEqual>),
      Predicate("none", Is<IsNone>),
      Predicate("number", Is<IsNumber>),
      Predicate("odd", HasParity<1>),
      Predicate("sequence", Is<IsIterable>),
      Predicate("string", Is<IsString>),
      Predicate("true", Is<IsTrue>),
      Predicate("undefined", Is<IsUndefined>),
      Predicate("upper", Is<IsUpperText>, Cost::kShallow),
  };
  return kTable;
}

}  // namespace talon::jinja
