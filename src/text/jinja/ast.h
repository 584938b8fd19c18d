// A parsed template: statements that hold expressions. Plain data; nothing in it changes after
// parsing, so one tree serves all threads.
#ifndef TALON_TEXT_JINJA_AST_H_
#define TALON_TEXT_JINJA_AST_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/jinja/builtins/builtins.h"
#include "text/jinja/value.h"

namespace talon::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct Sequence {  // [a, b] or (a, b)
  std::vector<ExprPtr> items;
  bool is_tuple = false;
};
struct DictDisplay {  // {key: value}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Attribute {  // object.name
  ExprPtr object;
  std::string name;
};
struct Subscript {  // object[key]
  ExprPtr object;
  ExprPtr key;
};
struct Slice {  // object[start:stop:step]; absent parts are null
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
struct Call {
  ExprPtr callee;
  Arguments arguments;
};
struct Filter {  // input | filter(arguments)
  ExprPtr input;
  const Builtin* filter;
  Arguments arguments;
};
struct Test {  // input is test(arguments)
  ExprPtr input;
  const Builtin* test;
  Arguments arguments;
};
enum class UnaryOp { kNot, kNegate, kPlus };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower, kConcat };
struct Binary {
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};
struct Logical {  // and / or: the value of the side that decides
  bool is_and;
  ExprPtr left;
  ExprPtr right;
};
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct Comparison {  // first op a op b ...
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {  // then if condition else otherwise (null: undefined)
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;
};

struct Expr {
  using Node = std::variant<Literal, Name, Sequence, DictDisplay, Attribute, Subscript, Slice, Call,
                            Filter, Test, Unary, Binary, Logical, Comparison, Conditional>;
  int line = 0;
  int depth = 1;  // depth of the tree below, itself included
  Node node;
};

// Chains such as a + b + c lean to one side, so depth is bounded, not only nesting.
inline constexpr int kMaxExprDepth = 200;
// The expression of a node, with its depth. Fails beyond kMaxExprDepth.
Result<ExprPtr> MakeExpr(int line, Expr::Node node);
// Calls visit for each expression directly below `node`.
void ForEachChild(const Expr::Node& node, const std::function<void(const Expr&)>& visit);

struct Statement;
using Block = std::vector<Statement>;

struct Text {
  Value text;
};
struct Print {
  ExprPtr value;
};
struct If {
  struct Branch {
    ExprPtr condition;
    Block body;
  };
  std::vector<Branch> branches;
  Block otherwise;
};
// What `for` and `set` assign to: one name, several, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpacks = false;
  std::string attribute;  // not empty: names[0].attribute
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  Block body;
  Block otherwise;
  bool uses_loop = false;  // the name `loop` occurs inside
};
struct Set {
  Target target;
  ExprPtr value;
};
struct FilterStep {
  const Builtin* filter;
  Arguments arguments;
};
// {% set x | filter %}body{% endset %}, or with no target {% filter trim %}body{% endfilter %}.
struct Capture {
  Target target;
  std::vector<FilterStep> filters;
  Block body;
};
struct Macro {
  struct Parameter {
    std::string name;
    ExprPtr default_value;  // may be null
  };
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
};
struct Break {};
struct Continue {};
struct Generation {  // marks the assistant's text; here only a scope
  Block body;
};

struct Statement {
  int line = 0;
  std::variant<Text, Print, If, For, Set, Capture, Macro, Break, Continue, Generation> node;
};

// Visits every statement, and every expression in them, the outer before the inner.
struct Walker {
  std::function<void(const Statement&)> on_statement;
  std::function<void(const Expr&)> on_expr;
};
void Walk(const Block& block, const Walker& walker);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_AST_H_
