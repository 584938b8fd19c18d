// Runs a template once.
#ifndef TALON_TEXT_JINJA_EVALUATOR_H_
#define TALON_TEXT_JINJA_EVALUATOR_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Names and values of one block: the template itself, a loop's body, a macro's call. Inner scopes
// see outer ones; assignments stay in the innermost.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}
  const Value* Find(const std::string& name) const;
  void Assign(const std::string& name, Value value) { variables_[name] = std::move(value); }
  void Clear() { variables_.clear(); }
  // A macro defined here may be called later: this scope and those around it must stay.
  void Keep();
  bool kept() const { return kept_; }

 private:
  Scope* parent_;
  bool kept_ = false;
  std::map<std::string, Value> variables_;
};

// Not thread-safe; for one Run().
class Evaluator {
 public:
  // Errors say "chat template, line 12: ...", except raise_exception's own message.
  Result<std::string> Run(const Block& block, std::map<std::string, Value> variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class ScopeGuard;
  class Depth;

  // Statements.
  Result<Flow> ExecuteBlock(const Block& block);
  Result<Flow> Execute(const Text& node);
  Result<Flow> Execute(const Print& node);
  Result<Flow> Execute(const If& node);
  Result<Flow> Execute(const For& node);
  Result<Flow> Execute(const Set& node);
  Result<Flow> Execute(const Capture& node);
  Result<Flow> Execute(const Macro& node);
  Result<Flow> Execute(const Break& node);
  Result<Flow> Execute(const Continue& node);
  Result<Flow> Execute(const Generation& node);
  Result<std::vector<Value>> LoopItems(const For& node);
  Status Assign(const Target& target, const Value& value);
  Status Write(std::string_view text);
  // What the block writes, as a string, in a scope of its own.
  Result<std::string> RunCaptured(const Block& block);

  // Expressions.
  Result<Value> Evaluate(const Expr& expr);
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
  Result<CallArguments> EvaluateArguments(const Arguments& arguments);
  Result<Value> CallMacro(const MacroValue& callee, CallArguments args);

  Runtime runtime_;
  Scope* scope_ = nullptr;                           // the innermost
  std::vector<std::unique_ptr<Scope>> kept_scopes_;  // left, but a macro refers to them
  std::string* out_ = nullptr;
  int depth_ = 0;
  int error_line_ = 0;  // line of the innermost expression or statement that failed
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EVALUATOR_H_
