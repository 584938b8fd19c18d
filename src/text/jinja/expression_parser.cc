#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

namespace talon::jinja {
namespace {

constexpr int kMaxNesting = 64;  // parentheses, unary operators, conditionals

struct OperatorName {
  std::string_view text;
  BinaryOp op;
};

template <size_t n>
std::optional<BinaryOp> TakeOperator(TokenStream& tokens, const OperatorName (&names)[n]) {
  for (const OperatorName& name : names) {
    if (tokens.SkipOperator(name.text)) return name.op;
  }
  return std::nullopt;
}

std::optional<CompareOp> TakeComparison(TokenStream& tokens) {
  static constexpr std::pair<std::string_view, CompareOp> kNames[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  for (const auto& [text, op] : kNames) {
    if (tokens.SkipOperator(text)) return op;
  }
  if (tokens.SkipName("in")) return CompareOp::kIn;
  const Token& next = tokens.following();
  if (tokens.AtName("not") && next.kind == TokenKind::kName && next.text == "in") {
    tokens.Take();
    tokens.Take();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

// In Jinja `safe` makes a string that escapes HTML in whatever is added to it. That would spoil a
// prompt, and ignoring `safe` would make another prompt than the model was trained on.
bool IsSafeString(const Expr& expr) {
  const auto* filter = std::get_if<Filter>(&expr.node);
  return filter != nullptr && filter->filter->name == "safe";
}

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser* parser) : parser_(*parser) { ++parser_.nesting_; }
  ~Nesting() { --parser_.nesting_; }
  Status Check() const {
    if (parser_.nesting_ <= kMaxNesting) return OkStatus();
    return TokenStream::Error(
        parser_.tokens_.line(),
        fmt::format("an expression is nested more than {} deep", kMaxNesting));
  }

 private:
  ExpressionParser& parser_;
};

// level (op level)*, leaning left. make_node(left) takes the operator and returns the node, or
// nothing at the end of the chain.
template <typename MakeNode>
Result<ExprPtr> ExpressionParser::ParseChain(Level level, MakeNode make_node) {
  const int line = tokens_.line();
  TALON_ASSIGN_OR_RETURN(ExprPtr left, (this->*level)());
  while (std::optional<Expr::Node> node = make_node()) {
    TALON_ASSIGN_OR_RETURN(ExprPtr right, (this->*level)());
    if (auto* binary = std::get_if<Binary>(&*node)) {
      if (binary->op == BinaryOp::kAdd && (IsSafeString(*left) || IsSafeString(*right))) {
        return TokenStream::Error(line, "the filter 'safe' beside '+' is not supported");
      }
      binary->left = std::move(left);
      binary->right = std::move(right);
    } else if (auto* logical = std::get_if<Logical>(&*node)) {
      logical->left = std::move(left);
      logical->right = std::move(right);
    }
    TALON_ASSIGN_OR_RETURN(left, MakeExpr(line, std::move(*node)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Parse() { return ParseConditional(); }

Result<ExprPtr> ExpressionParser::ParseTuple() {
  return ParseTupleOf(&ExpressionParser::ParseConditional, /*explicit_parentheses=*/false);
}

Result<ExprPtr> ExpressionParser::ParseIterable() {
  return ParseTupleOf(&ExpressionParser::ParseOr, /*explicit_parentheses=*/false);
}

Result<ExprPtr> ExpressionParser::ParseParenthesised() {
  return ParseTupleOf(&ExpressionParser::ParseConditional, /*explicit_parentheses=*/true);
}

bool ExpressionParser::AtTupleEnd() const {
  return tokens_.At(TokenKind::kPrintEnd) || tokens_.At(TokenKind::kBlockEnd) ||
         tokens_.AtOperator(")");
}

Result<ExprPtr> ExpressionParser::ParseTupleOf(Level level, bool explicit_parentheses) {
  const int line = tokens_.line();
  Sequence sequence{.items = {}, .is_tuple = true};
  bool has_comma = false;
  while (!AtTupleEnd()) {
    TALON_ASSIGN_OR_RETURN(ExprPtr item, (this->*level)());
    sequence.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && sequence.items.size() == 1) return std::move(sequence.items[0]);
  if (sequence.items.empty() && !explicit_parentheses) return tokens_.Unexpected("an expression");
  return MakeExpr(line, std::move(sequence));
}

Result<ExprPtr> ExpressionParser::ParseConditional() {
  const Nesting nesting(this);
  TALON_RETURN_IF_ERROR(nesting.Check());
  const int line = tokens_.line();
  TALON_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (tokens_.SkipName("if")) {
    Conditional conditional;
    TALON_ASSIGN_OR_RETURN(conditional.condition, ParseOr());
    conditional.then = std::move(value);
    if (tokens_.SkipName("else")) {
      TALON_ASSIGN_OR_RETURN(conditional.otherwise, ParseConditional());
    }
    TALON_ASSIGN_OR_RETURN(value, MakeExpr(line, std::move(conditional)));
  }
  return value;
}

Result<ExprPtr> ExpressionParser::ParseOr() {
  return ParseChain(&ExpressionParser::ParseAnd, [this]() -> std::optional<Expr::Node> {
    if (!tokens_.SkipName("or")) return std::nullopt;
    return Logical{.is_and = false};
  });
}

Result<ExprPtr> ExpressionParser::ParseAnd() {
  return ParseChain(&ExpressionParser::ParseNot, [this]() -> std::optional<Expr::Node> {
    if (!tokens_.SkipName("and")) return std::nullopt;
    return Logical{.is_and = true};
  });
}

Result<ExprPtr> ExpressionParser::ParseNot() {
  const int line = tokens_.line();
  if (!tokens_.SkipName("not")) return ParseComparison();
  const Nesting nesting(this);
  TALON_RETURN_IF_ERROR(nesting.Check());
  TALON_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  return MakeExpr(line, Unary{UnaryOp::kNot, std::move(operand)});
}

Result<ExprPtr> ExpressionParser::ParseComparison() {
  const int line = tokens_.line();
  Comparison comparison;
  TALON_ASSIGN_OR_RETURN(comparison.first, ParseSum());
  while (const auto op = TakeComparison(tokens_)) {
    TALON_ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    comparison.rest.emplace_back(*op, std::move(operand));
  }
  if (comparison.rest.empty()) return std::move(comparison.first);
  return MakeExpr(line, std::move(comparison));
}

Result<ExprPtr> ExpressionParser::ParseSum() {
  static constexpr OperatorName kNames[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}};
  return ParseChain(&ExpressionParser::ParseConcat, [this]() -> std::optional<Expr::Node> {
    const auto op = TakeOperator(tokens_, kNames);
    if (!op) return std::nullopt;
    return Binary{.op = *op};
  });
}

Result<ExprPtr> ExpressionParser::ParseConcat() {
  static constexpr OperatorName kNames[] = {{"~", BinaryOp::kConcat}};
  return ParseChain(&ExpressionParser::ParseProduct, [this]() -> std::optional<Expr::Node> {
    const auto op = TakeOperator(tokens_, kNames);
    if (!op) return std::nullopt;
    return Binary{.op = *op};
  });
}

Result<ExprPtr> ExpressionParser::ParseProduct() {
  static constexpr OperatorName kNames[] = {{"*", BinaryOp::kMultiply},
                                            {"/", BinaryOp::kDivide},
                                            {"//", BinaryOp::kFloorDivide},
                                            {"%", BinaryOp::kModulo}};
  return ParseChain(&ExpressionParser::ParsePower, [this]() -> std::optional<Expr::Node> {
    const auto op = TakeOperator(tokens_, kNames);
    if (!op) return std::nullopt;
    return Binary{.op = *op};
  });
}

Result<ExprPtr> ExpressionParser::ParsePower() {
  static constexpr OperatorName kNames[] = {{"**", BinaryOp::kPower}};
  return ParseChain(&ExpressionParser::ParseFiltered, [this]() -> std::optional<Expr::Node> {
    const auto op = TakeOperator(tokens_, kNames);
    if (!op) return std::nullopt;
    return Binary{.op = *op};
  });
}

// Filters and tests bind tighter than every binary operator: a ~ b|trim is a ~ (b|trim).
Result<ExprPtr> ExpressionParser::ParseFiltered() {
  TALON_ASSIGN_OR_RETURN(ExprPtr value, ParseUnary());
  while (true) {
    const int line = tokens_.line();
    if (tokens_.SkipOperator("|")) {
      TALON_ASSIGN_OR_RETURN(FilterStep step, operands_.ParseFilterStep());
      Filter filter{std::move(value), step.filter, std::move(step.arguments)};
      TALON_ASSIGN_OR_RETURN(value, MakeExpr(line, std::move(filter)));
    } else if (tokens_.SkipName("is")) {
      TALON_ASSIGN_OR_RETURN(value, operands_.ParseTest(std::move(value)));
    } else if (tokens_.AtOperator("(")) {
      TALON_ASSIGN_OR_RETURN(value, operands_.ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExprPtr> ExpressionParser::ParseUnary() {
  const int line = tokens_.line();
  ExprPtr value;
  if (tokens_.AtOperator("-") || tokens_.AtOperator("+")) {
    const Nesting nesting(this);
    TALON_RETURN_IF_ERROR(nesting.Check());
    const UnaryOp op = tokens_.Take().text == "-" ? UnaryOp::kNegate : UnaryOp::kPlus;
    TALON_ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary());
    TALON_ASSIGN_OR_RETURN(value, MakeExpr(line, Unary{op, std::move(operand)}));
  } else {
    TALON_ASSIGN_OR_RETURN(value, operands_.ParsePrimary());
  }
  return operands_.ParsePostfix(std::move(value));
}

}  // namespace talon::jinja
