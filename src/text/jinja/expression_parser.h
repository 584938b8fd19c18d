// Expressions, by recursive descent with Jinja's precedence:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary - +, then postfixes and filters.
#ifndef TALON_TEXT_JINJA_EXPRESSION_PARSER_H_
#define TALON_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace talon::jinja {

class ExpressionParser {
 public:
  // `tokens` must outlive this.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  Result<ExprPtr> Parse();
  // Also "a, b" without parentheses.
  Result<ExprPtr> ParseTuple();
  // What `for x in` takes: no if-else at the outside, where `if` filters the loop.
  Result<ExprPtr> ParseIterable();
  // "| filter(arguments)"*
  Result<std::vector<FilterStep>> ParseFilters();
  // "filter(arguments)", its name still to come.
  Result<FilterStep> ParseFilterStep();

  // Functions called by name, with their lines: to be checked when all names are known.
  const std::vector<std::pair<std::string, int>>& called_names() const { return called_names_; }
  // How often the name `loop` was used so far.
  int loop_uses() const { return loop_uses_; }

 private:
  using Level = Result<ExprPtr> (ExpressionParser::*)();

  // Bounds the parser's own recursion.
  class Nesting;

  Result<ExprPtr> Make(int line, Expr::Node node);
  Result<ExprPtr> ParseTupleOf(Level level, bool explicit_parentheses);
  Result<ExprPtr> ParseConditional();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseComparison();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParsePower();
  Result<ExprPtr> ParseFiltered();
  Result<ExprPtr> ParseUnary();
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseNameOrConstant();
  Result<ExprPtr> ParseString();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParsePostfix(ExprPtr object);
  Result<ExprPtr> ParseAttribute(ExprPtr object);
  Result<ExprPtr> ParseSubscript(ExprPtr object);
  Result<ExprPtr> ParseSlice(int line, ExprPtr object, ExprPtr start);
  Result<ExprPtr> ParseCall(ExprPtr callee);
  Result<ExprPtr> ParseTest(ExprPtr input);
  Result<Arguments> ParseTestArguments();
  Result<Arguments> ParseArguments();
  bool AtTupleEnd() const;

  template <typename MakeNode>
  Result<ExprPtr> ParseChain(Level level, MakeNode make_node);

  TokenStream& tokens_;
  int nesting_ = 0;
  int loop_uses_ = 0;
  std::vector<std::pair<std::string, int>> called_names_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EXPRESSION_PARSER_H_
