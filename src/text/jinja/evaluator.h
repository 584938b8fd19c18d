// Runs a template once.
#ifndef TALON_TEXT_JINJA_EVALUATOR_H_
#define TALON_TEXT_JINJA_EVALUATOR_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/expression_evaluator.h"
#include "text/jinja/render_state.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Executes statements; expressions are evaluated by a part of it. Not thread-safe; for one Run().
class Evaluator {
 public:
  Evaluator() : expressions_(&state_, [this](const Block& body) { return RunCaptured(body); }) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Errors say "chat template, line 12: ...", except raise_exception's own message.
  Result<std::string> Run(const Block& block, std::map<std::string, Value> variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };

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
  // What the block writes, as a string.
  Result<std::string> RunCaptured(const Block& block);

  RenderState state_;
  ExpressionEvaluator expressions_;
  std::string* out_ = nullptr;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EVALUATOR_H_
