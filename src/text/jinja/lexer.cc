#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "text/jinja/characters.h"
#include "text/jinja/string_literal.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                           "/",  "%",  "~",  "(",  ")",  "[",  "]", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ","};
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// One kind of newline, and none at the end.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> Run() {
    while (offset_ < source_.size()) {
      if (const Status status = NextTag(); !status.ok()) {
        return Status(status.code(), fmt::format("line {}: {}", line_, status.message()));
      }
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool At(std::string_view text) const { return source_.substr(offset_).starts_with(text); }
  void Add(TokenKind kind, std::string_view text) {
    tokens_.push_back({.kind = kind, .text = std::string(text), .line = line_});
  }
  void AdvanceTo(size_t offset) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + offset_, source_.begin() + offset, '\n'));
    offset_ = offset;
  }

  // The text up to the next tag, and the tag.
  Status NextTag() {
    const size_t begin = FindTag();
    const std::string_view text = source_.substr(offset_, begin - offset_);
    if (begin == source_.size()) {
      Add(TokenKind::kText, text);
      AdvanceTo(begin);
      return OkStatus();
    }
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    if (const auto kept = TrimBeforeTag(text, kind, sign); !kept.empty()) {
      Add(TokenKind::kText, kept);
    }
    AdvanceTo(begin + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return SkipComment();
    if (kind == '%' && AtRaw()) return RawBlock();
    Add(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    return Expression(kind == '{' ? '}' : '%');
  }

  size_t FindTag() const {
    for (size_t at = source_.find('{', offset_); at != std::string_view::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 == source_.size()) break;
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  std::string_view TrimBeforeTag(std::string_view text, char kind, char sign) const {
    if (sign == '-') return Strip(text, nullptr, {.left = false});
    if (sign == '+' || kind == '{') return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start_) return text;
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    return Strip(text.substr(line_start)).empty() ? text.substr(0, line_start) : text;
  }

  // `close` is at the two characters that end a tag; `sign` stands before them; `trims` is whether
  // a newline goes with the tag.
  void EndTag(size_t close, char sign, bool trims) {
    size_t end = close + 2;
    if (sign == '-') {
      end = SkipSpace(end);
    } else if (sign != '+' && trims && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    at_line_start_ = source_[end - 1] == '\n';
    AdvanceTo(end);
  }

  Status SkipComment() {
    const size_t close = source_.find("#}", offset_);
    if (close == std::string_view::npos) return InvalidArgument("a comment has no end");
    EndTag(close, close > offset_ ? source_[close - 1] : '\0', /*trims=*/true);
    return OkStatus();
  }

  // After "{%": is this {% raw %}? Moves behind it if so.
  bool AtRaw() {
    size_t end = SkipSpace(offset_);
    if (!source_.substr(end).starts_with("raw")) return false;
    end = SkipSpace(end + 3);
    const bool strips = source_.substr(end).starts_with("-");
    if (strips) ++end;
    if (!source_.substr(end).starts_with("%}")) return false;
    end += 2;
    AdvanceTo(strips ? SkipSpace(end) : end);
    return true;
  }

  Status RawBlock() {
    for (size_t tag = source_.find("{%", offset_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const size_t name = SkipSpace(tag + (sign == '-' || sign == '+' ? 3 : 2));
      if (!source_.substr(name).starts_with("endraw")) continue;
      size_t close = SkipSpace(name + 6);
      if (close < source_.size() && (source_[close] == '-' || source_[close] == '+')) ++close;
      if (!source_.substr(close).starts_with("%}")) continue;
      at_line_start_ = source_[offset_ - 1] == '\n';
      Add(TokenKind::kText, TrimBeforeTag(source_.substr(offset_, tag - offset_), '%', sign));
      EndTag(close, source_[close - 1], /*trims=*/true);
      return OkStatus();
    }
    return InvalidArgument("a raw block has no end");
  }

  size_t SkipSpace(size_t offset) const {
    return source_.size() - Strip(source_.substr(offset), nullptr, {.right = false}).size();
  }

  // The tokens up to and with the end of the tag: `closer` and '}'.
  Status Expression(char closer) {
    const char end_mark[] = {closer, '}', '\0'};
    open_brackets_.clear();
    while (true) {
      AdvanceTo(SkipSpace(offset_));
      if (offset_ == source_.size()) return InvalidArgument("a tag has no end");
      size_t close = offset_;
      if (At("-") || (closer == '%' && At("+"))) ++close;
      if (open_brackets_.empty() && source_.substr(close).starts_with(end_mark)) {
        Add(closer == '}' ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        EndTag(close, close > offset_ ? source_[offset_] : '\0', /*trims=*/closer == '%');
        return OkStatus();
      }
      TALON_RETURN_IF_ERROR(ExpressionToken());
    }
  }

  Status ExpressionToken() {
    const char c = source_[offset_];
    if (IsDigit(c)) return Number();
    if (IsNameStart(c)) return Name();
    if (c == '\'' || c == '"') return StringLiteral(c);
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      TALON_RETURN_IF_ERROR(Balance(op[0]));
      Add(TokenKind::kOperator, op);
      AdvanceTo(offset_ + op.size());
      return OkStatus();
    }
    size_t next = offset_;
    NextCodePoint(source_, &next);
    return InvalidArgument("unexpected character '{}'", source_.substr(offset_, next - offset_));
  }

  Status Balance(char c) {
    if (c == '(' || c == '[' || c == '{') {
      open_brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets_.empty()) return InvalidArgument("unexpected '{}'", c);
      if (open_brackets_.back() != c) {
        return InvalidArgument("unexpected '{}', expected '{}'", c, open_brackets_.back());
      }
      open_brackets_.pop_back();
    }
    return OkStatus();
  }

  Status Name() {
    size_t end = offset_;
    while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
    Add(TokenKind::kName, source_.substr(offset_, end - offset_));
    AdvanceTo(end);
    return OkStatus();
  }

  size_t DigitsEnd(size_t at) const {
    while (at < source_.size() && IsDigit(source_[at])) ++at;
    return at;
  }

  // Decimal integers and floats. After a dot only an integer counts: x.0.1 has two look-ups.
  Status Number() {
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                           tokens_.back().text == ".";
    size_t end = DigitsEnd(offset_);
    bool is_float = false;
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' &&
        IsDigit(source_[end + 1])) {
      is_float = true;
      end = DigitsEnd(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < source_.size() && (source_[digits] == '-' || source_[digits] == '+')) ++digits;
      if (const size_t exponent_end = DigitsEnd(digits); exponent_end > digits) {
        is_float = true;
        end = exponent_end;
      }
    }
    if (end < source_.size() && IsNameStart(source_[end])) {
      return InvalidArgument("'{}' is not a number this parser knows",
                             source_.substr(offset_, end + 1 - offset_));
    }
    return AddNumber(source_.substr(offset_, end - offset_), is_float);
  }

  Status AddNumber(std::string_view text, bool is_float) {
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    Token& token = tokens_.back();
    const char* end = text.data() + text.size();
    const std::errc error = is_float ? std::from_chars(text.data(), end, token.number).ec
                                     : std::from_chars(text.data(), end, token.integer).ec;
    if (error != std::errc{}) return InvalidArgument("the number {} is out of range", text);
    AdvanceTo(offset_ + text.size());
    return OkStatus();
  }

  Status StringLiteral(char quote) {
    size_t end = offset_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return InvalidArgument("a string has no end");
    TALON_ASSIGN_OR_RETURN(const std::string text,
                           Unescape(source_.substr(offset_ + 1, end - offset_ - 1)));
    Add(TokenKind::kString, text);
    AdvanceTo(end + 1);
    return OkStatus();
  }

  const std::string_view source_;
  size_t offset_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the text so far ends with a newline, or is empty
  std::string open_brackets_;  // what closes them, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  if (const auto offset = FindInvalidUtf8(source)) {
    return InvalidArgument("not valid UTF-8 at byte {}", *offset);
  }
  const std::string normalized = NormalizeNewlines(source);
  return Lexer(normalized).Run();
}

}  // namespace talon::jinja
