#include "text/jinja/ast.h"

#include <algorithm>

namespace talon::jinja {
namespace {

class ChildVisitor {
 public:
  explicit ChildVisitor(const std::function<void(const Expr&)>& visit) : visit_(visit) {}

  void operator()(const Literal&) const {}
  void operator()(const Name&) const {}
  void operator()(const Sequence& node) const {
    for (const ExprPtr& item : node.items) Visit(item);
  }
  void operator()(const DictDisplay& node) const {
    for (const auto& [key, value] : node.entries) {
      Visit(key);
      Visit(value);
    }
  }
  void operator()(const Attribute& node) const { Visit(node.object); }
  void operator()(const Subscript& node) const {
    Visit(node.object);
    Visit(node.key);
  }
  void operator()(const Slice& node) const {
    Visit(node.object);
    Visit(node.start);
    Visit(node.stop);
    Visit(node.step);
  }
  void operator()(const Call& node) const {
    Visit(node.callee);
    VisitArguments(node.arguments);
  }
  void operator()(const Filter& node) const {
    Visit(node.input);
    VisitArguments(node.arguments);
  }
  void operator()(const Test& node) const {
    Visit(node.input);
    VisitArguments(node.arguments);
  }
  void operator()(const Unary& node) const { Visit(node.operand); }
  void operator()(const Binary& node) const {
    Visit(node.left);
    Visit(node.right);
  }
  void operator()(const Logical& node) const {
    Visit(node.left);
    Visit(node.right);
  }
  void operator()(const Comparison& node) const {
    Visit(node.first);
    for (const auto& [op, operand] : node.rest) Visit(operand);
  }
  void operator()(const Conditional& node) const {
    Visit(node.condition);
    Visit(node.then);
    Visit(node.otherwise);
  }

 private:
  void Visit(const ExprPtr& child) const {
    if (child != nullptr) visit_(*child);
  }
  void VisitArguments(const Arguments& arguments) const {
    for (const ExprPtr& argument : arguments.positional) Visit(argument);
    for (const auto& [name, argument] : arguments.named) Visit(argument);
  }

  const std::function<void(const Expr&)>& visit_;
};

void WalkExpr(const Expr& expr, const Walker& walker) {
  walker.on_expr(expr);
  ForEachChild(expr.node, [&](const Expr& child) { WalkExpr(child, walker); });
}

// The expressions and blocks directly in a statement.
class StatementWalker {
 public:
  explicit StatementWalker(const Walker& walker) : walker_(walker) {}

  void operator()(const Text&) const {}
  void operator()(const Break&) const {}
  void operator()(const Continue&) const {}
  void operator()(const Print& node) const { Visit(node.value); }
  void operator()(const Set& node) const { Visit(node.value); }
  void operator()(const Generation& node) const { Walk(node.body, walker_); }
  void operator()(const If& node) const {
    for (const If::Branch& branch : node.branches) {
      Visit(branch.condition);
      Walk(branch.body, walker_);
    }
    Walk(node.otherwise, walker_);
  }
  void operator()(const For& node) const {
    Visit(node.iterable);
    Visit(node.filter);
    Walk(node.body, walker_);
    Walk(node.otherwise, walker_);
  }
  void operator()(const Capture& node) const {
    for (const FilterStep& step : node.filters) {
      for (const ExprPtr& argument : step.arguments.positional) Visit(argument);
      for (const auto& [name, argument] : step.arguments.named) Visit(argument);
    }
    Walk(node.body, walker_);
  }
  void operator()(const Macro& node) const {
    for (const Macro::Parameter& parameter : node.parameters) Visit(parameter.default_value);
    Walk(node.body, walker_);
  }

 private:
  void Visit(const ExprPtr& expr) const {
    if (expr != nullptr) WalkExpr(*expr, walker_);
  }

  const Walker& walker_;
};

}  // namespace

void Walk(const Block& block, const Walker& walker) {
  for (const Statement& statement : block) {
    walker.on_statement(statement);
    std::visit(StatementWalker(walker), statement.node);
  }
}

Result<ExprPtr> MakeExpr(int line, Expr::Node node) {
  int depth = 1;
  ForEachChild(node, [&](const Expr& child) { depth = std::max(depth, child.depth + 1); });
  if (depth > kMaxExprDepth) {
    return InvalidArgument("line {}: an expression has more than {} operators in a chain", line,
                           kMaxExprDepth);
  }
  return ExprPtr(new Expr{line, depth, std::move(node)});
}

void ForEachChild(const Expr::Node& node, const std::function<void(const Expr&)>& visit) {
  std::visit(ChildVisitor(visit), node);
}

}  // namespace talon::jinja
