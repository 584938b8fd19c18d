// Evaluates the expressions of a template.
#ifndef TALON_TEXT_JINJA_EXPRESSION_EVALUATOR_H_
#define TALON_TEXT_JINJA_EXPRESSION_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/render_state.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Not thread-safe; for one render.
class ExpressionEvaluator {
 public:
  // Runs the body of a macro that is called, and returns what it writes.
  using RunBody = std::function<Result<std::string>(const Block&)>;

  // `state` is not owned.
  ExpressionEvaluator(RenderState* state, RunBody run_body)
      : state_(*state), run_body_(std::move(run_body)) {}

  Result<Value> Evaluate(const Expr& expr);
  Result<CallArguments> EvaluateArguments(const Arguments& arguments);

 private:
  Result<Value> EvaluateWithinLimits(const Expr& expr);
  Result<Value> EvaluateNode(const Literal& node);
  Result<Value> EvaluateNode(const Name& node);
  Result<Value> EvaluateNode(const Sequence& node);
  Result<Value> EvaluateNode(const DictDisplay& node);
  Result<Value> EvaluateNode(const Attribute& node);
  Result<Value> EvaluateNode(const Subscript& node);
  Result<Value> EvaluateNode(const Slice& node);
  Result<Value> EvaluateNode(const Call& node);
  Result<Value> EvaluateNode(const Filter& node);
  Result<Value> EvaluateNode(const Test& node);
  Result<Value> EvaluateNode(const Unary& node);
  Result<Value> EvaluateNode(const Binary& node);
  Result<Value> EvaluateNode(const Logical& node);
  Result<Value> EvaluateNode(const Comparison& node);
  Result<Value> EvaluateNode(const Conditional& node);
  Result<std::optional<int64_t>> SliceBound(const ExprPtr& bound);
  Result<Value> CallMacro(const MacroValue& callee, CallArguments args);

  RenderState& state_;
  RunBody run_body_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EXPRESSION_EVALUATOR_H_
