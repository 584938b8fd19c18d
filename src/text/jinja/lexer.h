// A template's source as tokens, white space already trimmed as transformers asks of Jinja:
// trim_blocks (no newline after a tag), lstrip_blocks (no indentation before one), `-` and `+`
// signs and no newline at the end. Pure function, thread-safe.
#ifndef TALON_TEXT_JINJA_LEXER_H_
#define TALON_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace talon::jinja {

enum class TokenKind {
  kText,        // outside of tags
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,  // `text` has the escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 0;
  int64_t integer = 0;
  double number = 0;
};

// Ends with one kEnd. Errors begin with "line N: ".
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_LEXER_H_
