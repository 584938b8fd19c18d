// Expressions, by recursive descent with Jinja's precedence:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary - +, then postfixes and filters
// (operand_parser.h).
#ifndef TALON_TEXT_JINJA_EXPRESSION_PARSER_H_
#define TALON_TEXT_JINJA_EXPRESSION_PARSER_H_

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/operand_parser.h"
#include "text/jinja/token_stream.h"

namespace talon::jinja {

class ExpressionParser {
 public:
  // `tokens` must outlive this.
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens), operands_(tokens, this) {}
  ExpressionParser(const ExpressionParser&) = delete;
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  Result<ExprPtr> Parse();
  // Also "a, b" without parentheses.
  Result<ExprPtr> ParseTuple();
  // What may stand inside parentheses: an expression, a tuple or nothing.
  Result<ExprPtr> ParseParenthesised();
  // What `for x in` takes: no if-else at the outside, where `if` filters the loop.
  Result<ExprPtr> ParseIterable();

  OperandParser& operands() { return operands_; }

 private:
  using Level = Result<ExprPtr> (ExpressionParser::*)();

  // Bounds the parser's own recursion.
  class Nesting;

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
  bool AtTupleEnd() const;

  template <typename MakeNode>
  Result<ExprPtr> ParseChain(Level level, MakeNode make_node);

  TokenStream& tokens_;
  OperandParser operands_;
  int nesting_ = 0;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EXPRESSION_PARSER_H_
