// A cursor over tokens, and the errors of parsers.
#ifndef TALON_TEXT_JINJA_TOKEN_STREAM_H_
#define TALON_TEXT_JINJA_TOKEN_STREAM_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/lexer.h"

namespace talon::jinja {

class TokenStream {
 public:
  // REQUIRES: `tokens` ends with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  bool At(TokenKind kind) const { return current().kind == kind; }
  bool AtOperator(std::string_view text) const {
    return At(TokenKind::kOperator) && current().text == text;
  }
  bool AtName(std::string_view text) const {
    return At(TokenKind::kName) && current().text == text;
  }

  Token Take() {
    Token token = current();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool SkipOperator(std::string_view text) {
    const bool found = AtOperator(text);
    if (found) Take();
    return found;
  }
  bool SkipName(std::string_view text) {
    const bool found = AtName(text);
    if (found) Take();
    return found;
  }

  Status ExpectOperator(std::string_view text) {
    return SkipOperator(text) ? OkStatus() : Unexpected(fmt::format("'{}'", text));
  }
  Status ExpectName(std::string_view text) {
    return SkipName(text) ? OkStatus() : Unexpected(fmt::format("'{}'", text));
  }
  Result<std::string> ExpectAnyName() {
    if (!At(TokenKind::kName)) return Unexpected("a name");
    return Take().text;
  }
  Status Expect(TokenKind kind, std::string_view what) {
    if (!At(kind)) return Unexpected(what);
    Take();
    return OkStatus();
  }

  // "line 3: expected X, found Y"
  Status Unexpected(std::string_view expected) const {
    return Error(line(), fmt::format("expected {}, found {}", expected, Describe(current())));
  }
  static Status Error(int line, std::string_view message) {
    return InvalidArgument("line {}: {}", line, message);
  }

 private:
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kPrintBegin:
        return "'{{'";
      case TokenKind::kPrintEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return fmt::format("'{}'", token.text);
    }
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_TOKEN_STREAM_H_
