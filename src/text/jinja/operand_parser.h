// Operands of expressions: literals, names, look-ups, calls, filters and tests.
#ifndef TALON_TEXT_JINJA_OPERAND_PARSER_H_
#define TALON_TEXT_JINJA_OPERAND_PARSER_H_

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace talon::jinja {

class ExpressionParser;

class OperandParser {
 public:
  // `tokens` and `expressions`, which parses what is inside brackets, must outlive this.
  OperandParser(TokenStream* tokens, ExpressionParser* expressions)
      : tokens_(*tokens), expressions_(*expressions) {}

  // A literal, a name or something in brackets.
  Result<ExprPtr> ParsePrimary();
  // Attributes, subscripts and calls after `object`.
  Result<ExprPtr> ParsePostfix(ExprPtr object);
  Result<ExprPtr> ParseCall(ExprPtr callee);
  // "divisibleby(3)" after "input is".
  Result<ExprPtr> ParseTest(ExprPtr input);
  // "| filter(arguments)"*
  Result<std::vector<FilterStep>> ParseFilters();
  // "filter(arguments)", its name still to come.
  Result<FilterStep> ParseFilterStep();

  // Functions called by name, with their lines: to be checked when all names are known.
  const std::vector<std::pair<std::string, int>>& called_names() const { return called_names_; }
  // How often the name `loop` was used so far.
  int loop_uses() const { return loop_uses_; }

 private:
  Result<ExprPtr> ParseNameOrConstant();
  Result<ExprPtr> ParseString();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParseAttribute(ExprPtr object);
  Result<ExprPtr> ParseSubscript(ExprPtr object);
  Result<ExprPtr> ParseSlice(int line, ExprPtr object, ExprPtr start);
  Result<Arguments> ParseTestArguments();
  Result<Arguments> ParseArguments();

  TokenStream& tokens_;
  ExpressionParser& expressions_;
  int loop_uses_ = 0;
  std::vector<std::pair<std::string, int>> called_names_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_OPERAND_PARSER_H_
