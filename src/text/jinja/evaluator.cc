#include "text/jinja/evaluator.h"

#include <utility>

#include "text/jinja/text.h"

namespace talon::jinja {
namespace {

// `loop` as the body sees it in one round.
Value LoopValue(const std::vector<Value>& items, size_t index) {
  const auto count = static_cast<int64_t>(items.size());
  const auto i = static_cast<int64_t>(index);
  std::vector<Dict::Entry> entries = {
      {"index", Value::Int(i + 1)},        {"index0", Value::Int(i)},
      {"revindex", Value::Int(count - i)}, {"revindex0", Value::Int(count - i - 1)},
      {"first", Value::Bool(i == 0)},      {"last", Value::Bool(i + 1 == count)},
      {"length", Value::Int(count)}};
  if (i > 0) entries.emplace_back("previtem", items[index - 1]);
  if (i + 1 < count) entries.emplace_back("nextitem", items[index + 1]);
  return Value::MakeDict(std::move(entries));
}

}  // namespace

Result<std::string> Evaluator::Run(const Block& block, std::map<std::string, Value> variables) {
  std::string out;
  out_ = &out;
  const ScopeGuard guard(&state_, nullptr);
  for (auto& [name, value] : variables) state_.scope->Assign(name, std::move(value));
  const auto flow = ExecuteBlock(block);
  if (flow.ok()) return out;
  if (state_.runtime.raised()) return flow.status();
  return Status(flow.status().code(), fmt::format("chat template, line {}: {}", state_.error_line,
                                                  flow.status().message()));
}

Result<Evaluator::Flow> Evaluator::ExecuteBlock(const Block& block) {
  const DepthGuard depth(&state_);
  TALON_RETURN_IF_ERROR(depth.Check());
  for (const Statement& statement : block) {
    TALON_RETURN_IF_ERROR(state_.runtime.Charge(kStepWork));
    auto flow = std::visit([this](const auto& node) { return Execute(node); }, statement.node);
    if (!flow.ok()) state_.FailedAt(statement.line);
    if (!flow.ok() || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Status Evaluator::Write(std::string_view text) {
  TALON_RETURN_IF_ERROR(state_.runtime.Charge(text.size()));
  if (text.size() > kMaxOutputBytes - out_->size()) {
    return ResourceExhausted("the output is larger than {} bytes", kMaxOutputBytes);
  }
  out_->append(text);
  return OkStatus();
}

Result<Evaluator::Flow> Evaluator::Execute(const Text& node) {
  TALON_RETURN_IF_ERROR(Write(node.text.str()));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::Execute(const Print& node) {
  TALON_ASSIGN_OR_RETURN(const Value value, expressions_.Evaluate(*node.value));
  if (value.is_string()) {
    TALON_RETURN_IF_ERROR(Write(value.str()));
    return Flow::kNext;
  }
  TALON_RETURN_IF_ERROR(state_.runtime.Charge(ExtentOf(value).bytes));
  TALON_ASSIGN_OR_RETURN(const std::string text, ToText(value));
  TALON_RETURN_IF_ERROR(Write(text));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::Execute(const If& node) {
  for (const If::Branch& branch : node.branches) {
    TALON_ASSIGN_OR_RETURN(const Value condition, expressions_.Evaluate(*branch.condition));
    if (Truthy(condition)) return ExecuteBlock(branch.body);
  }
  return ExecuteBlock(node.otherwise);
}

// All items first: `loop` knows how many the filter leaves.
Result<std::vector<Value>> Evaluator::LoopItems(const For& node) {
  TALON_ASSIGN_OR_RETURN(const Value iterable, expressions_.Evaluate(*node.iterable));
  TALON_ASSIGN_OR_RETURN(std::vector<Value> items, state_.runtime.Iterate(iterable));
  if (node.filter == nullptr) return items;
  const ScopeGuard guard(&state_, state_.scope);
  std::vector<Value> kept;
  for (Value& item : items) {
    TALON_RETURN_IF_ERROR(Assign(node.target, item));
    TALON_ASSIGN_OR_RETURN(const Value keeps, expressions_.Evaluate(*node.filter));
    if (Truthy(keeps)) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::Execute(const For& node) {
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, LoopItems(node));
  const ScopeGuard guard(&state_, state_.scope);
  if (items.empty()) return ExecuteBlock(node.otherwise);
  for (size_t i = 0; i < items.size(); ++i) {
    state_.scope->Clear();
    if (node.uses_loop) {
      TALON_RETURN_IF_ERROR(state_.runtime.Charge(kStepWork));
      state_.scope->Assign("loop", LoopValue(items, i));
    }
    TALON_RETURN_IF_ERROR(Assign(node.target, items[i]));
    TALON_ASSIGN_OR_RETURN(const Flow flow, ExecuteBlock(node.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Status Evaluator::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* found = state_.scope->Find(target.names[0]);
    const auto* space = found == nullptr ? nullptr : std::get_if<Namespace*>(&found->variant());
    if (space == nullptr) return InvalidArgument("'{}' is not a namespace", target.names[0]);
    (*space)->attributes[target.attribute] = value;
    return OkStatus();
  }
  if (!target.unpacks) {
    state_.scope->Assign(target.names[0], value);
    return OkStatus();
  }
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> parts, state_.runtime.Iterate(value));
  if (parts.size() != target.names.size()) {
    return InvalidArgument("{} values for {} names", parts.size(), target.names.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) state_.scope->Assign(target.names[i], parts[i]);
  return OkStatus();
}

Result<Evaluator::Flow> Evaluator::Execute(const Set& node) {
  TALON_ASSIGN_OR_RETURN(const Value value, expressions_.Evaluate(*node.value));
  TALON_RETURN_IF_ERROR(Assign(node.target, value));
  return Flow::kNext;
}

Result<std::string> Evaluator::RunCaptured(const Block& block) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const auto flow = ExecuteBlock(block);
  out_ = outer;
  if (!flow.ok()) return flow.status();
  return text;
}

Result<Evaluator::Flow> Evaluator::Execute(const Capture& node) {
  Value value;
  {
    const ScopeGuard guard(&state_, state_.scope);
    TALON_ASSIGN_OR_RETURN(std::string text, RunCaptured(node.body));
    value = Value::String(std::move(text));
  }
  for (const FilterStep& step : node.filters) {
    TALON_ASSIGN_OR_RETURN(CallArguments args, expressions_.EvaluateArguments(step.arguments));
    TALON_ASSIGN_OR_RETURN(value,
                           CallBuiltin(state_.runtime, *step.filter, value, std::move(args)));
  }
  if (!node.target.names.empty()) {
    TALON_RETURN_IF_ERROR(Assign(node.target, value));
    return Flow::kNext;
  }
  TALON_ASSIGN_OR_RETURN(const std::string text, ToText(value));
  TALON_RETURN_IF_ERROR(Write(text));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::Execute(const Macro& node) {
  state_.scope->Keep();
  state_.scope->Assign(node.name, Value(MacroValue{&node, state_.scope}));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::Execute(const Break&) { return Flow::kBreak; }
Result<Evaluator::Flow> Evaluator::Execute(const Continue&) { return Flow::kContinue; }

Result<Evaluator::Flow> Evaluator::Execute(const Generation& node) {
  const ScopeGuard guard(&state_, state_.scope);
  return ExecuteBlock(node.body);
}

}  // namespace talon::jinja
