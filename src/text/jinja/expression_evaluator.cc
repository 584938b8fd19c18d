#include "text/jinja/expression_evaluator.h"

#include <algorithm>

#include "text/jinja/operators.h"

namespace talon::jinja {

Result<Value> ExpressionEvaluator::Evaluate(const Expr& expr) {
  auto result = EvaluateWithinLimits(expr);
  if (!result.ok()) state_.FailedAt(expr.line);
  return result;
}

Result<Value> ExpressionEvaluator::EvaluateWithinLimits(const Expr& expr) {
  const DepthGuard depth(&state_);
  TALON_RETURN_IF_ERROR(depth.Check());
  TALON_RETURN_IF_ERROR(state_.runtime.Charge(kStepWork));
  auto result = std::visit([this](const auto& node) { return EvaluateNode(node); }, expr.node);
  if (!result.ok()) return result;
  const Extent extent = ExtentOf(*result);
  if (extent.depth > kMaxValueDepth || extent.bytes > kMaxValueBytes) {
    return ResourceExhausted("a value is too large: {} levels, {} bytes or more", extent.depth,
                             extent.bytes);
  }
  return result;
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Literal& node) { return node.value; }

Result<Value> ExpressionEvaluator::EvaluateNode(const Name& node) {
  if (const Value* found = state_.scope->Find(node.name)) return *found;
  if (const Builtin* function = FindGlobal(node.name)) return Value(function);
  return Value::MakeUndefined("variable", node.name);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Sequence& node) {
  std::vector<Value> items;
  for (const ExprPtr& item : node.items) {
    TALON_ASSIGN_OR_RETURN(Value value, Evaluate(*item));
    items.push_back(std::move(value));
  }
  return node.is_tuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
}

Result<Value> ExpressionEvaluator::EvaluateNode(const DictDisplay& node) {
  std::vector<Dict::Entry> entries;
  for (const auto& [key_expr, value_expr] : node.entries) {
    TALON_ASSIGN_OR_RETURN(const Value key, Evaluate(*key_expr));
    if (!key.is_string())
      return InvalidArgument("a dict's key must be a str, not {}", key.TypeName());
    TALON_ASSIGN_OR_RETURN(Value value, Evaluate(*value_expr));
    entries.emplace_back(key.str(), std::move(value));
  }
  return Value::MakeDict(std::move(entries));
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Attribute& node) {
  TALON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  return GetAttribute(object, node.name);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Subscript& node) {
  TALON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  TALON_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.key));
  return GetItem(state_.runtime, object, key);
}

Result<std::optional<int64_t>> ExpressionEvaluator::SliceBound(const ExprPtr& bound) {
  if (bound == nullptr) return std::optional<int64_t>();
  TALON_ASSIGN_OR_RETURN(const Value value, Evaluate(*bound));
  if (value.is_none()) return std::optional<int64_t>();
  if (value.is_int() || value.is_bool()) return std::optional<int64_t>(value.AsInt());
  return InvalidArgument("a slice's bound must be an int, not {}", value.TypeName());
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Slice& node) {
  TALON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.object));
  SliceBounds bounds;
  TALON_ASSIGN_OR_RETURN(bounds.start, SliceBound(node.start));
  TALON_ASSIGN_OR_RETURN(bounds.stop, SliceBound(node.stop));
  TALON_ASSIGN_OR_RETURN(const std::optional<int64_t> step, SliceBound(node.step));
  bounds.step = step.value_or(1);
  return GetSlice(state_.runtime, object, bounds);
}

Result<CallArguments> ExpressionEvaluator::EvaluateArguments(const Arguments& arguments) {
  CallArguments args;
  for (const ExprPtr& argument : arguments.positional) {
    TALON_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.named) {
    TALON_ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    args.named.emplace_back(name, std::move(value));
  }
  return args;
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Call& node) {
  TALON_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.callee));
  if (!IsCallable(callee)) {
    if (callee.is_undefined()) return InvalidArgument("{}", UndefinedMessage(callee));
    return InvalidArgument("a {} cannot be called", callee.TypeName());
  }
  TALON_ASSIGN_OR_RETURN(CallArguments args, EvaluateArguments(node.arguments));
  if (const auto* macro = std::get_if<MacroValue>(&callee.variant())) {
    return CallMacro(*macro, std::move(args));
  }
  if (const auto* bound = std::get_if<BoundMethod>(&callee.variant())) {
    return CallBuiltin(state_.runtime, *bound->method, *bound->self, std::move(args));
  }
  return CallBuiltin(state_.runtime, *std::get<const Builtin*>(callee.variant()), Value(),
                     std::move(args));
}

Result<Value> ExpressionEvaluator::CallMacro(const MacroValue& callee, CallArguments args) {
  const Macro& macro = *callee.macro;
  if (args.positional.size() > macro.parameters.size()) {
    return InvalidArgument("macro '{}' takes at most {} arguments, {} given", macro.name,
                           macro.parameters.size(), args.positional.size());
  }
  const ScopeGuard guard(&state_, callee.scope);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Macro::Parameter& parameter = macro.parameters[i];
    Value value = Value::MakeUndefined("parameter", parameter.name);
    const auto named = std::find_if(args.named.begin(), args.named.end(), [&](const auto& entry) {
      return entry.first == parameter.name;
    });
    if (i < args.positional.size()) {
      value = std::move(args.positional[i]);
    } else if (named != args.named.end()) {
      value = std::move(named->second);
      args.named.erase(named);
    } else if (parameter.default_value != nullptr) {
      TALON_ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value));
    }
    state_.scope->Assign(parameter.name, std::move(value));
  }
  if (!args.named.empty()) {
    return InvalidArgument("macro '{}' does not take the argument '{}'", macro.name,
                           args.named[0].first);
  }
  TALON_ASSIGN_OR_RETURN(std::string text, run_body_(macro.body));
  return Value::String(std::move(text));
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Filter& node) {
  TALON_ASSIGN_OR_RETURN(const Value input, Evaluate(*node.input));
  TALON_ASSIGN_OR_RETURN(CallArguments args, EvaluateArguments(node.arguments));
  return CallBuiltin(state_.runtime, *node.filter, input, std::move(args));
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Test& node) {
  TALON_ASSIGN_OR_RETURN(const Value input, Evaluate(*node.input));
  TALON_ASSIGN_OR_RETURN(CallArguments args, EvaluateArguments(node.arguments));
  return CallBuiltin(state_.runtime, *node.test, input, std::move(args));
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Unary& node) {
  TALON_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.operand));
  return ApplyUnary(node.op, operand);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Binary& node) {
  TALON_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left));
  TALON_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right));
  return ApplyBinary(state_.runtime, node.op, left, right);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Logical& node) {
  TALON_ASSIGN_OR_RETURN(Value left, Evaluate(*node.left));
  if (Truthy(left) != node.is_and) return left;
  return Evaluate(*node.right);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Comparison& node) {
  TALON_ASSIGN_OR_RETURN(Value left, Evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    TALON_ASSIGN_OR_RETURN(Value right, Evaluate(*operand));
    TALON_ASSIGN_OR_RETURN(const bool holds, ApplyComparison(state_.runtime, op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> ExpressionEvaluator::EvaluateNode(const Conditional& node) {
  TALON_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.condition));
  if (Truthy(condition)) return Evaluate(*node.then);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise);
  return Value::MakeUndefined("value", "inline if without else");
}

}  // namespace talon::jinja
