#include "text/chat_traits.h"

#include <set>
#include <string>
#include <string_view>

namespace talon {
namespace {

using jinja::Expr;

// `x` of x | filter | filter.
const Expr& WithoutFilters(const Expr& expr) {
  const Expr* inner = &expr;
  while (const auto* filter = std::get_if<jinja::Filter>(&inner->node)) inner = filter->input.get();
  return *inner;
}

// Is this x.member or x['member']?
bool IsMember(const Expr& expr, std::string_view member) {
  if (const auto* attribute = std::get_if<jinja::Attribute>(&expr.node)) {
    return attribute->name == member;
  }
  const auto* subscript = std::get_if<jinja::Subscript>(&expr.node);
  if (subscript == nullptr) return false;
  const auto* key = std::get_if<jinja::Literal>(&subscript->key->node);
  return key != nullptr && key->value.is_string() && key->value.str() == member;
}

// Expressions that stand for one member of a message: x.member itself, variables set to it, and a
// variable or macro parameter of that very name.
class MemberExpressions {
 public:
  MemberExpressions(const jinja::Block& block, std::string_view member)
      : member_(member), names_{std::string(member)} {
    jinja::Walk(block, {.on_statement = [this](const jinja::Statement& node) { Learn(node); },
                        .on_expr = [](const Expr&) {}});
  }

  bool Contains(const Expr& expr) const {
    const auto* name = std::get_if<jinja::Name>(&expr.node);
    return IsMember(expr, member_) || (name != nullptr && names_.contains(name->name));
  }

 private:
  void Learn(const jinja::Statement& statement) {
    const auto* set = std::get_if<jinja::Set>(&statement.node);
    if (set == nullptr || set->target.unpacks || !set->target.attribute.empty()) return;
    if (Contains(WithoutFilters(*set->value))) names_.insert(set->target.names[0]);
  }

  std::string_view member_;
  std::set<std::string> names_;
};

bool IsStringTest(const Expr& expr, const MemberExpressions& members) {
  const auto* test = std::get_if<jinja::Test>(&expr.node);
  return test != nullptr && test->test->name == "string" && members.Contains(*test->input);
}

bool IsConcatenation(const Expr& expr, const MemberExpressions& members) {
  const auto* binary = std::get_if<jinja::Binary>(&expr.node);
  return binary != nullptr && (members.Contains(*binary->left) || members.Contains(*binary->right));
}

bool IsNoneTest(const Expr& expr, const MemberExpressions& members) {
  const auto* test = std::get_if<jinja::Test>(&expr.node);
  return test != nullptr && test->test->name == "none" &&
         members.Contains(WithoutFilters(*test->input));
}

// The text of a string literal; null if it is something else.
const std::string* LiteralText(const Expr& expr) {
  const auto* literal = std::get_if<jinja::Literal>(&expr.node);
  return literal != nullptr && literal->value.is_string() ? &literal->value.str() : nullptr;
}

// Literals that `expr` looks for in a text: 'a' in x, x.split('a'), x == 'a'.
void AddSought(const Expr& expr, std::vector<std::string>* sought) {
  const auto add = [&](const Expr& part) {
    if (const std::string* text = LiteralText(part)) sought->push_back(*text);
  };
  if (const auto* comparison = std::get_if<jinja::Comparison>(&expr.node)) {
    add(*comparison->first);
    for (const auto& [op, operand] : comparison->rest) add(*operand);
  }
  if (const auto* call = std::get_if<jinja::Call>(&expr.node)) {
    if (!std::holds_alternative<jinja::Attribute>(call->callee->node)) return;
    for (const auto& argument : call->arguments.positional) add(*argument);
  }
}

// x.split('a'), x.replace('a', ''), x | replace('a', '').
bool CutsText(const Expr& expr) {
  if (const auto* filter = std::get_if<jinja::Filter>(&expr.node)) {
    return filter->filter->name == "replace";
  }
  const auto* call = std::get_if<jinja::Call>(&expr.node);
  const auto* method =
      call == nullptr ? nullptr : std::get_if<jinja::Attribute>(&call->callee->node);
  return method != nullptr && (method->name.ends_with("split") || method->name == "replace");
}

// A loop over content that reads the text of its parts.
bool IsPartLoop(const jinja::Statement& statement, const MemberExpressions& content) {
  const auto* loop = std::get_if<jinja::For>(&statement.node);
  if (loop == nullptr || !content.Contains(WithoutFilters(*loop->iterable))) return false;
  bool reads_text = false;
  jinja::Walk(loop->body, {.on_statement = [](const jinja::Statement&) {},
                           .on_expr =
                               [&](const Expr& expr) {
                                 if (IsMember(expr, "text")) reads_text = true;
                               }});
  return reads_text;
}

}  // namespace

ChatTraits FindChatTraits(const jinja::Block& block) {
  const MemberExpressions content(block, "content");
  const MemberExpressions arguments(block, "arguments");
  ChatTraits traits;
  const auto on_statement = [&](const jinja::Statement& statement) {
    if (IsPartLoop(statement, content)) traits.loops_over_content = true;
    const auto* print = std::get_if<jinja::Print>(&statement.node);
    if (print != nullptr && arguments.Contains(*print->value)) traits.takes_argument_text = true;
  };
  const auto on_expr = [&](const Expr& expr) {
    if (IsStringTest(expr, arguments) || IsConcatenation(expr, arguments)) {
      traits.takes_argument_text = true;
    }
    if (IsNoneTest(expr, content)) traits.tests_none = true;
    const std::string* text = LiteralText(expr);
    if (text != nullptr && *text == "developer") traits.names_developer = true;
    if (CutsText(expr)) traits.cuts_texts = true;
    if (const auto* name = std::get_if<jinja::Name>(&expr.node))
      traits.variables.insert(name->name);
    AddSought(expr, &traits.sought);
  };
  jinja::Walk(block, {.on_statement = on_statement, .on_expr = on_expr});
  return traits;
}

}  // namespace talon
