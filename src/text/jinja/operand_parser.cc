#include "text/jinja/operand_parser.h"

#include "text/jinja/expression_parser.h"

namespace talon::jinja {
namespace {

// The filters whose first argument, if it is a literal, names another builtin.
Status CheckNamedBuiltin(const Builtin& filter, const Arguments& arguments, int line) {
  const bool by_attribute = filter.name == "selectattr" || filter.name == "rejectattr";
  const bool by_test = by_attribute || filter.name == "select" || filter.name == "reject";
  if (!by_test && filter.name != "map") return OkStatus();
  const size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() <= place) return OkStatus();
  const auto* literal = std::get_if<Literal>(&arguments.positional[place]->node);
  if (literal == nullptr || !literal->value.is_string()) return OkStatus();
  const std::string& name = literal->value.str();
  if ((by_test ? FindTest(name) : FindFilter(name)) != nullptr) return OkStatus();
  return TokenStream::Error(line,
                            fmt::format("unknown {} '{}'", by_test ? "test" : "filter", name));
}

Status CheckStatically(const Builtin& builtin, std::string_view kind, const Arguments& arguments,
                       int line) {
  std::vector<std::string_view> named;
  for (const auto& [name, value] : arguments.named) named.push_back(name);
  const Status status = CheckArguments(builtin, kind, arguments.positional.size(), named);
  return status.ok() ? status : TokenStream::Error(line, status.message());
}

}  // namespace

Result<ExprPtr> OperandParser::ParsePrimary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInteger:
      return MakeExpr(line, Literal{Value::Int(tokens_.Take().integer)});
    case TokenKind::kFloat:
      return MakeExpr(line, Literal{Value::Float(tokens_.Take().number)});
    default:
      break;
  }
  if (tokens_.AtOperator("[")) return ParseList();
  if (tokens_.AtOperator("{")) return ParseDict();
  if (!tokens_.SkipOperator("(")) return tokens_.Unexpected("an expression");
  TALON_ASSIGN_OR_RETURN(ExprPtr value, expressions_.ParseParenthesised());
  TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return value;
}

Result<ExprPtr> OperandParser::ParseNameOrConstant() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return MakeExpr(token.line, Literal{Value::Bool(true)});
  if (name == "false" || name == "False") return MakeExpr(token.line, Literal{Value::Bool(false)});
  if (name == "none" || name == "None") return MakeExpr(token.line, Literal{Value::MakeNone()});
  if (name == "loop") ++loop_uses_;
  return MakeExpr(token.line, Name{name});
}

Result<ExprPtr> OperandParser::ParseString() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.At(TokenKind::kString)) text += tokens_.Take().text;
  return MakeExpr(line, Literal{Value::String(std::move(text))});
}

Result<ExprPtr> OperandParser::ParseList() {
  const int line = tokens_.Take().line;
  Sequence list;
  while (!tokens_.SkipOperator("]")) {
    if (!list.items.empty()) {
      TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator("]")) break;
    }
    TALON_ASSIGN_OR_RETURN(ExprPtr item, expressions_.Parse());
    list.items.push_back(std::move(item));
  }
  return MakeExpr(line, std::move(list));
}

Result<ExprPtr> OperandParser::ParseDict() {
  const int line = tokens_.Take().line;
  DictDisplay dict;
  while (!tokens_.SkipOperator("}")) {
    if (!dict.entries.empty()) {
      TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator("}")) break;
    }
    TALON_ASSIGN_OR_RETURN(ExprPtr key, expressions_.Parse());
    const auto* literal = std::get_if<Literal>(&key->node);
    if (literal != nullptr && !literal->value.is_string()) {
      return TokenStream::Error(key->line, "a dict's key must be a str");
    }
    TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    TALON_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Parse());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  return MakeExpr(line, std::move(dict));
}

Result<ExprPtr> OperandParser::ParsePostfix(ExprPtr object) {
  while (true) {
    if (tokens_.AtOperator(".")) {
      TALON_ASSIGN_OR_RETURN(object, ParseAttribute(std::move(object)));
    } else if (tokens_.AtOperator("[")) {
      TALON_ASSIGN_OR_RETURN(object, ParseSubscript(std::move(object)));
    } else if (tokens_.AtOperator("(")) {
      TALON_ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExprPtr> OperandParser::ParseAttribute(ExprPtr object) {
  const int line = tokens_.Take().line;
  if (tokens_.At(TokenKind::kInteger)) {
    TALON_ASSIGN_OR_RETURN(ExprPtr key,
                           MakeExpr(line, Literal{Value::Int(tokens_.Take().integer)}));
    return MakeExpr(line, Subscript{std::move(object), std::move(key)});
  }
  TALON_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectAnyName());
  return MakeExpr(line, Attribute{std::move(object), std::move(name)});
}

Result<ExprPtr> OperandParser::ParseSubscript(ExprPtr object) {
  const int line = tokens_.Take().line;
  ExprPtr key;
  if (!tokens_.AtOperator(":")) {
    TALON_ASSIGN_OR_RETURN(key, expressions_.Parse());
  }
  if (tokens_.AtOperator(":")) return ParseSlice(line, std::move(object), std::move(key));
  TALON_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return MakeExpr(line, Subscript{std::move(object), std::move(key)});
}

Result<ExprPtr> OperandParser::ParseSlice(int line, ExprPtr object, ExprPtr start) {
  Slice slice{.object = std::move(object), .start = std::move(start)};
  for (ExprPtr* part : {&slice.stop, &slice.step}) {
    if (!tokens_.SkipOperator(":")) break;
    if (tokens_.AtOperator(":") || tokens_.AtOperator("]")) continue;
    TALON_ASSIGN_OR_RETURN(*part, expressions_.Parse());
  }
  TALON_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  return MakeExpr(line, std::move(slice));
}

Result<ExprPtr> OperandParser::ParseCall(ExprPtr callee) {
  const int line = tokens_.line();
  if (const auto* name = std::get_if<Name>(&callee->node)) {
    called_names_.emplace_back(name->name, line);
  } else if (const auto* attribute = std::get_if<Attribute>(&callee->node)) {
    if (!IsMethodName(attribute->name)) {
      return TokenStream::Error(line, fmt::format("unknown method '{}'", attribute->name));
    }
  }
  TALON_ASSIGN_OR_RETURN(Arguments arguments, ParseArguments());
  return MakeExpr(line, Call{std::move(callee), std::move(arguments)});
}

Result<Arguments> OperandParser::ParseArguments() {
  TALON_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  Arguments arguments;
  while (!tokens_.SkipOperator(")")) {
    if (!arguments.positional.empty() || !arguments.named.empty()) {
      TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.SkipOperator(")")) break;
    }
    const Token& next = tokens_.following();
    const bool is_named =
        tokens_.At(TokenKind::kName) && next.kind == TokenKind::kOperator && next.text == "=";
    std::string name;
    if (is_named) {
      name = tokens_.Take().text;
      tokens_.Take();
    } else if (!arguments.named.empty()) {
      return tokens_.Unexpected("a keyword argument");
    }
    TALON_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Parse());
    if (is_named) {
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      arguments.positional.push_back(std::move(value));
    }
  }
  return arguments;
}

Result<std::vector<FilterStep>> OperandParser::ParseFilters() {
  std::vector<FilterStep> steps;
  while (tokens_.SkipOperator("|")) {
    TALON_ASSIGN_OR_RETURN(FilterStep step, ParseFilterStep());
    steps.push_back(std::move(step));
  }
  return steps;
}

Result<FilterStep> OperandParser::ParseFilterStep() {
  const int line = tokens_.line();
  TALON_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectAnyName());
  FilterStep step{.filter = FindFilter(name)};
  if (step.filter == nullptr) {
    return TokenStream::Error(line, fmt::format("unknown filter '{}'", name));
  }
  if (tokens_.AtOperator("(")) {
    TALON_ASSIGN_OR_RETURN(step.arguments, ParseArguments());
  }
  TALON_RETURN_IF_ERROR(CheckStatically(*step.filter, "filter", step.arguments, line));
  TALON_RETURN_IF_ERROR(CheckNamedBuiltin(*step.filter, step.arguments, line));
  return step;
}

Result<ExprPtr> OperandParser::ParseTest(ExprPtr input) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  TALON_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectAnyName());
  Test test{.input = std::move(input), .test = FindTest(name)};
  if (test.test == nullptr) {
    return TokenStream::Error(line, fmt::format("unknown test '{}'", name));
  }
  TALON_ASSIGN_OR_RETURN(test.arguments, ParseTestArguments());
  TALON_RETURN_IF_ERROR(CheckStatically(*test.test, "test", test.arguments, line));
  TALON_ASSIGN_OR_RETURN(ExprPtr result, MakeExpr(line, std::move(test)));
  if (!negated) return result;
  return MakeExpr(line, Unary{UnaryOp::kNot, std::move(result)});
}

// "(a, b)", or one operand without parentheses: x is divisibleby 3.
Result<Arguments> OperandParser::ParseTestArguments() {
  if (tokens_.AtOperator("(")) return ParseArguments();
  Arguments arguments;
  const TokenKind kind = tokens_.current().kind;
  const bool is_operand = kind == TokenKind::kString || kind == TokenKind::kInteger ||
                          kind == TokenKind::kFloat || kind == TokenKind::kName ||
                          tokens_.AtOperator("[") || tokens_.AtOperator("{");
  const bool is_keyword = tokens_.AtName("else") || tokens_.AtName("or") || tokens_.AtName("and");
  if (!is_operand || is_keyword) return arguments;
  TALON_ASSIGN_OR_RETURN(ExprPtr operand, ParsePrimary());
  TALON_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
  arguments.positional.push_back(std::move(operand));
  return arguments;
}

}  // namespace talon::jinja
