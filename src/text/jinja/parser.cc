#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/expression_parser.h"

namespace talon::jinja {
namespace {

constexpr int kMaxBlockNesting = 64;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens)
      : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  Result<Block> Run() {
    TALON_ASSIGN_OR_RETURN(Block body, ParseBlock({}));
    for (const auto& [name, line] : expressions_.operands().called_names()) {
      if (FindGlobal(name) == nullptr && !assigned_.contains(name)) {
        return TokenStream::Error(line, fmt::format("unknown function '{}'", name));
      }
    }
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Statements up to a tag named in `ends`; stops behind "{%", at that name. With no `ends`, up to
  // the end of the template.
  Result<Block> ParseBlock(Names ends) {
    if (++block_nesting_ > kMaxBlockNesting) {
      return TokenStream::Error(tokens_.line(),
                                fmt::format("tags are nested more than {} deep", kMaxBlockNesting));
    }
    Block block;
    while (!tokens_.At(TokenKind::kEnd)) {
      if (tokens_.At(TokenKind::kBlockBegin)) {
        tokens_.Take();
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view end) { return tokens_.AtName(end); })) {
          --block_nesting_;
          return block;
        }
        TALON_RETURN_IF_ERROR(ParseTag(&block));
      } else {
        TALON_RETURN_IF_ERROR(ParseOutput(&block));
      }
    }
    if (ends.size() != 0) return tokens_.Unexpected(fmt::format("'{}'", *(ends.end() - 1)));
    --block_nesting_;
    return block;
  }

  // A block up to {% end %}, behind that tag.
  Result<Block> ParseBody(std::string_view end) {
    TALON_RETURN_IF_ERROR(EndTag());
    TALON_ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
    tokens_.Take();
    TALON_RETURN_IF_ERROR(EndTag());
    return body;
  }

  Status EndTag() { return tokens_.Expect(TokenKind::kBlockEnd, "'%}'"); }

  Status ParseOutput(Block* block) {
    const int line = tokens_.line();
    if (tokens_.At(TokenKind::kText)) {
      block->push_back({line, Text{Value::String(tokens_.Take().text)}});
      return OkStatus();
    }
    TALON_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kPrintBegin, "'{{'"));
    TALON_ASSIGN_OR_RETURN(ExprPtr value, expressions_.ParseTuple());
    TALON_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kPrintEnd, "'}}'"));
    block->push_back({line, Print{std::move(value)}});
    return OkStatus();
  }

  Status ParseTag(Block* block) {
    const int line = tokens_.line();
    TALON_ASSIGN_OR_RETURN(const std::string tag, tokens_.ExpectAnyName());
    if (tag == "if") return ParseIf(line, block);
    if (tag == "for") return ParseFor(line, block);
    if (tag == "set") return ParseSet(line, block);
    if (tag == "macro") return ParseMacro(line, block);
    if (tag == "filter") return ParseFilterBlock(line, block);
    if (tag == "break" || tag == "continue") return ParseLoopControl(line, tag == "break", block);
    if (tag == "generation") {
      TALON_ASSIGN_OR_RETURN(Block body, WithoutLoop("endgeneration"));
      block->push_back({line, Generation{std::move(body)}});
      return OkStatus();
    }
    return TokenStream::Error(line, fmt::format("unknown tag '{}'", tag));
  }

  Status ParseIf(int line, Block* block) {
    If node;
    do {
      If::Branch branch;
      TALON_ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple());
      TALON_RETURN_IF_ERROR(EndTag());
      TALON_ASSIGN_OR_RETURN(branch.body, ParseBlock({"elif", "else", "endif"}));
      node.branches.push_back(std::move(branch));
    } while (tokens_.SkipName("elif"));
    if (tokens_.SkipName("else")) {
      TALON_ASSIGN_OR_RETURN(node.otherwise, ParseBody("endif"));
    } else {
      tokens_.Take();
      TALON_RETURN_IF_ERROR(EndTag());
    }
    block->push_back({line, std::move(node)});
    return OkStatus();
  }

  Status ParseFor(int line, Block* block) {
    For node;
    TALON_ASSIGN_OR_RETURN(node.target, ParseTarget(/*allow_attribute=*/false));
    TALON_RETURN_IF_ERROR(tokens_.ExpectName("in"));
    TALON_ASSIGN_OR_RETURN(node.iterable, expressions_.ParseIterable());
    if (tokens_.SkipName("if")) {
      TALON_ASSIGN_OR_RETURN(node.filter, expressions_.Parse());
    }
    if (tokens_.AtName("recursive")) {
      return TokenStream::Error(line, "recursive loops are not supported");
    }
    TALON_RETURN_IF_ERROR(EndTag());
    const int uses_before = expressions_.operands().loop_uses();
    ++loop_nesting_;
    TALON_ASSIGN_OR_RETURN(node.body, ParseBlock({"else", "endfor"}));
    --loop_nesting_;
    node.uses_loop = expressions_.operands().loop_uses() > uses_before;
    if (tokens_.SkipName("else")) {
      TALON_ASSIGN_OR_RETURN(node.otherwise, ParseBody("endfor"));
    } else {
      tokens_.Take();
      TALON_RETURN_IF_ERROR(EndTag());
    }
    block->push_back({line, std::move(node)});
    return OkStatus();
  }

  Result<Target> ParseTarget(bool allow_attribute) {
    Target target;
    const bool in_parentheses = tokens_.SkipOperator("(");
    do {
      if (!target.names.empty() && !tokens_.At(TokenKind::kName)) break;  // "a, = ..."
      TALON_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectAnyName());
      assigned_.insert(name);
      target.names.push_back(std::move(name));
      if (tokens_.AtName("in")) break;
      if (allow_attribute && target.names.size() == 1 && tokens_.SkipOperator(".")) {
        TALON_ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectAnyName());
        return target;
      }
      if (!tokens_.AtOperator(",")) break;
      target.unpacks = true;
    } while (tokens_.SkipOperator(","));
    if (in_parentheses) TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return target;
  }

  Status ParseSet(int line, Block* block) {
    TALON_ASSIGN_OR_RETURN(Target target, ParseTarget(/*allow_attribute=*/true));
    if (tokens_.SkipOperator("=")) {
      TALON_ASSIGN_OR_RETURN(ExprPtr value, expressions_.ParseTuple());
      TALON_RETURN_IF_ERROR(EndTag());
      block->push_back({line, Set{std::move(target), std::move(value)}});
      return OkStatus();
    }
    Capture capture{.target = std::move(target)};
    TALON_ASSIGN_OR_RETURN(capture.filters, expressions_.operands().ParseFilters());
    TALON_ASSIGN_OR_RETURN(capture.body, WithoutLoop("endset"));
    block->push_back({line, std::move(capture)});
    return OkStatus();
  }

  Status ParseFilterBlock(int line, Block* block) {
    Capture capture;
    TALON_ASSIGN_OR_RETURN(FilterStep first, expressions_.operands().ParseFilterStep());
    TALON_ASSIGN_OR_RETURN(capture.filters, expressions_.operands().ParseFilters());
    capture.filters.insert(capture.filters.begin(), std::move(first));
    TALON_ASSIGN_OR_RETURN(capture.body, WithoutLoop("endfilter"));
    block->push_back({line, std::move(capture)});
    return OkStatus();
  }

  Status ParseMacro(int line, Block* block) {
    Macro macro;
    TALON_ASSIGN_OR_RETURN(macro.name, tokens_.ExpectAnyName());
    assigned_.insert(macro.name);
    TALON_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.SkipOperator(")")) {
      if (!macro.parameters.empty()) TALON_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      Macro::Parameter parameter;
      TALON_ASSIGN_OR_RETURN(parameter.name, tokens_.ExpectAnyName());
      assigned_.insert(parameter.name);
      if (tokens_.SkipOperator("=")) {
        TALON_ASSIGN_OR_RETURN(parameter.default_value, expressions_.Parse());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        return tokens_.Unexpected("'=', as an earlier parameter has a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    TALON_ASSIGN_OR_RETURN(macro.body, WithoutLoop("endmacro"));
    block->push_back({line, std::move(macro)});
    return OkStatus();
  }

  // A body that break and continue cannot leave.
  Result<Block> WithoutLoop(std::string_view end) {
    const int outer = std::exchange(loop_nesting_, 0);
    TALON_ASSIGN_OR_RETURN(Block body, ParseBody(end));
    loop_nesting_ = outer;
    return body;
  }

  Status ParseLoopControl(int line, bool is_break, Block* block) {
    if (loop_nesting_ == 0) return TokenStream::Error(line, "break or continue outside of a loop");
    TALON_RETURN_IF_ERROR(EndTag());
    if (is_break) {
      block->push_back({line, Break{}});
    } else {
      block->push_back({line, Continue{}});
    }
    return OkStatus();
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  std::set<std::string> assigned_;
  int block_nesting_ = 0;
  int loop_nesting_ = 0;
};

}  // namespace

Result<Block> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("{} bytes, limit {}", source.size(), kMaxSourceBytes);
  }
  TALON_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace talon::jinja
