#include "text/regex/oniguruma.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace talon {
namespace {

// Members of a class, without its brackets.
constexpr std::string_view kSpace =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

struct PosixClass {
  std::string_view name;
  std::string_view members;
};
constexpr PosixClass kPosixClasses[] = {
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"space", kSpace},
    {"upper", R"(\p{Uppercase})"},
    {"word", kWord},
    {"xdigit", kHexDigit},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsContinuation(char c) { return (c & 0xC0) == 0x80; }

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (!AtEnd()) TALON_RETURN_IF_ERROR(RewriteNext());
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  void Copy(size_t count) {
    count = std::min(count, pattern_.size() - at_);
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }
  void CopyThrough(char last) {
    const size_t end = pattern_.find(last, at_);
    Copy(end == std::string_view::npos ? pattern_.size() - at_ : end - at_ + 1);
  }
  void CopyCharacter() {
    Copy(1);
    while (!AtEnd() && IsContinuation(Peek())) Copy(1);
  }
  // Replaces `length` characters of the pattern.
  void Put(size_t length, std::string_view text) {
    at_ += length;
    out_.append(text);
  }
  void PutClass(size_t length, bool negated, std::string_view members) {
    Put(length, negated ? "[^" : "[");
    Put(0, members);
    Put(0, "]");
  }

  Status RewriteNext();
  Status RewriteEscape();
  Status RewriteClass();
  Status RewriteClassEscape();
  Status RewritePosixClass();
  void RewriteGroupStart();
  void RewriteInterval();
  void RewriteBoundary(bool negated);
  void CopyCommonEscape();
  bool RewriteCodePoint();

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

Status Rewriter::RewriteNext() {
  const size_t start = out_.size();
  switch (Peek()) {
    case '\\':
      atom_ = start;
      return RewriteEscape();
    case '[':
      atom_ = start;
      return RewriteClass();
    case '(':
      groups_.push_back(start);
      RewriteGroupStart();
      return OkStatus();
    case ')':
      atom_ = groups_.empty() ? start : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      Copy(1);
      return OkStatus();
    case '{':
      RewriteInterval();
      return OkStatus();
    case '*':
    case '+':
    case '?':
      Copy(1);
      return OkStatus();
    default:
      atom_ = start;
      CopyCharacter();
      return OkStatus();
  }
}

// The introduction of a group is copied whole, so that its '?' is not taken for a repetition.
void Rewriter::RewriteGroupStart() {
  Copy(1);
  if (Peek() != '?') return;
  Copy(1);
  if (Peek() == '#') {
    CopyThrough(')');
    groups_.pop_back();
    return;
  }
  if (Peek() == '<' && Peek(1) != '=' && Peek(1) != '!') {
    CopyThrough('>');
    return;
  }
  size_t length = 0;
  while (std::string_view("imx-").find(Peek(length)) != std::string_view::npos &&
         Peek(length) != '\0') {
    ++length;
  }
  if (Peek(length) != ':' && Peek(length) != ')') length = 0;
  for (; length > 0; --length) {
    if (Peek() == 'm') {
      Put(1, "s");
    } else {
      Copy(1);
    }
  }
}

void Rewriter::RewriteInterval() {
  size_t length = 1;
  while (IsDigit(Peek(length))) ++length;
  const bool has_low = length > 1;
  bool has_high = has_low;
  if (Peek(length) == ',') {
    const size_t comma = length++;
    while (IsDigit(Peek(length))) ++length;
    has_high = length > comma + 1;
  }
  if (Peek(length) != '}' || !(has_low || has_high)) {
    atom_ = out_.size();
    Put(1, "\\{");
    return;
  }
  const bool repeated = Peek(length + 1) == '+';
  if (repeated) out_.insert(atom_, "(?:");
  Copy(1);
  if (!has_low) Put(0, "0");
  Copy(length);
  if (repeated) Put(1, ")+");
}

void Rewriter::RewriteBoundary(bool negated) {
  const std::string word = "[" + std::string(kWord) + "]";
  const std::string both =
      negated ? "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
              : "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
  Put(2, both);
}

bool Rewriter::RewriteCodePoint() {
  for (size_t i = 2; i < 6; ++i) {
    if (!IsHexDigit(Peek(i))) return false;
  }
  const std::string digits(pattern_.substr(at_ + 2, 4));
  Put(6, "\\x{" + digits + "}");
  return true;
}

// Escapes that mean the same in both syntaxes, with their argument in braces.
void Rewriter::CopyCommonEscape() {
  const bool may_have_argument =
      std::string_view("xpPokgN").find(Peek(1)) != std::string_view::npos;
  Copy(1);
  if (!AtEnd()) CopyCharacter();
  if (may_have_argument && Peek() == '{') CopyThrough('}');
}

Status Rewriter::RewriteEscape() {
  switch (Peek(1)) {
    case 's':
    case 'S':
      PutClass(2, Peek(1) == 'S', kSpace);
      break;
    case 'w':
    case 'W':
      PutClass(2, Peek(1) == 'W', kWord);
      break;
    case 'h':
    case 'H':
      PutClass(2, Peek(1) == 'H', kHexDigit);
      break;
    case 'b':
    case 'B':
      RewriteBoundary(Peek(1) == 'B');
      break;
    case 'v':
      Put(2, "\\x0b");
      break;
    case 'u':
      if (!RewriteCodePoint()) CopyCommonEscape();
      break;
    default:
      CopyCommonEscape();
  }
  return OkStatus();
}

Status Rewriter::RewriteClass() {
  Copy(1);
  if (Peek() == '^') Copy(1);
  if (Peek() == ']') Copy(1);
  while (!AtEnd() && Peek() != ']') {
    if (Peek() == '[' && Peek(1) == ':') {
      TALON_RETURN_IF_ERROR(RewritePosixClass());
    } else if (Peek() == '[' || (Peek() == '&' && Peek(1) == '&')) {
      return Unimplemented("regex \"{}\": nested character class at byte {}", pattern_, at_);
    } else if (Peek() == '\\') {
      TALON_RETURN_IF_ERROR(RewriteClassEscape());
    } else {
      CopyCharacter();
    }
  }
  Copy(1);
  return OkStatus();
}

Status Rewriter::RewriteClassEscape() {
  const char letter = Peek(1);
  if (letter == 'W' || letter == 'H') {
    return Unimplemented("regex \"{}\": \\{} inside a character class", pattern_, letter);
  }
  if (letter == 's') {
    Put(2, kSpace);
  } else if (letter == 'S') {
    Put(2, R"(\S\x{180e})");
  } else if (letter == 'w') {
    Put(2, kWord);
  } else if (letter == 'h') {
    Put(2, kHexDigit);
  } else if (letter == 'v') {
    Put(2, "\\x0b");
    return OkStatus();
  } else {
    if (letter != 'u' || !RewriteCodePoint()) CopyCommonEscape();
    return OkStatus();
  }
  // The rewritten set ends in a character, which a '-' must not make the start of a range.
  if (Peek() == '-') Put(1, "\\-");
  return OkStatus();
}

Status Rewriter::RewritePosixClass() {
  const size_t end = pattern_.find(":]", at_ + 2);
  const std::string_view name =
      end == std::string_view::npos ? "" : pattern_.substr(at_ + 2, end - at_ - 2);
  const auto* known = std::find_if(std::begin(kPosixClasses), std::end(kPosixClasses),
                                   [&](const PosixClass& entry) { return entry.name == name; });
  if (known == std::end(kPosixClasses)) {
    return Unimplemented("regex \"{}\": bracket expression [:{}:]", pattern_, name);
  }
  Put(name.size() + 4, known->members);
  if (Peek() == '-') Put(1, "\\-");
  return OkStatus();
}

}  // namespace

Result<std::string> PatternFromOniguruma(std::string_view pattern) {
  return Rewriter(pattern).Run();
}

}  // namespace talon
