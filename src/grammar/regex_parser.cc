#include "grammar/regex_parser.h"

#include <optional>
#include <utility>

#include "grammar/scanner.h"

namespace talon {
namespace {

using NodeKind = RegexNode::Kind;

constexpr size_t kLongestSource = 16384;
constexpr int kDeepest = 100;
constexpr int kMostRepeats = 1'000'000;

const CodePoints& Digits() {
  static const CodePoints set = {{'0', '9'}};
  return set;
}
const CodePoints& WordCharacters() {
  static const CodePoints set = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
  return set;
}
const CodePoints& Spaces() {
  static const CodePoints set = {
      {9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const CodePoints& LineEnds() {
  static const CodePoints set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

// What \d, \w, \s and their opposites \D, \W, \S stand for. False: the letter is another one.
bool NamedSet(uint32_t letter, CodePoints* set) {
  switch (letter) {
    case 'd':
      *set = Digits();
      return true;
    case 'D':
      *set = Digits().Complement();
      return true;
    case 'w':
      *set = WordCharacters();
      return true;
    case 'W':
      *set = WordCharacters().Complement();
      return true;
    case 's':
      *set = Spaces();
      return true;
    case 'S':
      *set = Spaces().Complement();
      return true;
    default:
      return false;
  }
}

// What \n and the like stand for; \b, in a class only, is the backspace.
std::optional<uint32_t> ControlCharacter(uint32_t letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'b':
      return '\b';
    case '0':
      return 0;
    default:
      return std::nullopt;
  }
}

class Parser : private Scanner {
 public:
  explicit Parser(std::string_view source) : Scanner(source) {}

  Result<RegexNode> Parse() {
    if (source_.size() > kLongestSource) {
      return InvalidArgument("regex: {} bytes, limit {}", source_.size(), kLongestSource);
    }
    TALON_ASSIGN_OR_RETURN(RegexNode node, Alternatives());
    if (!AtEnd()) return Error("unmatched ')'");
    return node;
  }

 private:
  Status Error(std::string_view what) const {
    return InvalidArgument("regex: {} at {}", what, at_);
  }

  Result<RegexNode> Alternatives() {
    if (++depth_ > kDeepest) return Error("too deeply nested");
    RegexNode result{.kind = NodeKind::kAlternatives};
    do {
      TALON_ASSIGN_OR_RETURN(RegexNode sequence, Sequence());
      result.kids.push_back(std::move(sequence));
    } while (Take("|"));
    --depth_;
    if (result.kids.size() == 1) return std::move(result.kids[0]);
    return result;
  }

  Result<RegexNode> Sequence() {
    RegexNode result;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      TALON_ASSIGN_OR_RETURN(RegexNode atom, Atom());
      TALON_ASSIGN_OR_RETURN(RegexNode repeated, Quantified(std::move(atom)));
      result.kids.push_back(std::move(repeated));
    }
    if (result.kids.size() == 1) return std::move(result.kids[0]);
    return result;
  }

  Result<RegexNode> Atom() {
    if (Take("^")) return RegexNode{.kind = NodeKind::kBegin};
    if (Take("$")) return RegexNode{.kind = NodeKind::kEnd};
    if (Take("(")) return Group();
    if (Take("[")) return Class();
    if (Take(".")) return Set(LineEnds().Complement());
    if (Peek() == '*' || Peek() == '+' || Peek() == '?') return Error("nothing to repeat");
    CodePoints set;
    if (Take("\\")) {
      TALON_RETURN_IF_ERROR(Escape(/*in_class=*/false, &set));
    } else {
      uint32_t point = 0;
      if (!DecodeUtf8(source_, &at_, &point)) return Error("malformed UTF-8");
      set.Add(point, point);
    }
    return Set(std::move(set));
  }

  static RegexNode Set(CodePoints points) {
    return {.kind = NodeKind::kSet, .set = std::move(points)};
  }

  Result<RegexNode> Group() {
    if (Take("?")) {
      if (Take("=") || Take("!") || Take("<=") || Take("<!")) {
        return Error("look-around is not supported");
      }
      if (Take("<") || Take("P<")) {
        const size_t end = source_.find('>', at_);
        if (end == std::string_view::npos) return Error("unfinished group name");
        at_ = end + 1;
      } else if (!Take(":")) {
        return Error("this kind of group is not supported");
      }
    }
    TALON_ASSIGN_OR_RETURN(RegexNode inner, Alternatives());
    if (!Take(")")) return Error("missing ')'");
    return inner;
  }

  Result<RegexNode> Quantified(RegexNode atom) {
    for (;;) {
      int min = 0;
      int max = ExprPool::kNoLimit;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else {
        TALON_ASSIGN_OR_RETURN(const bool counted, Counts(&min, &max));
        if (!counted) return atom;
      }
      Take("?");  // a lazy quantifier matches the same strings
      if (atom.kind == NodeKind::kBegin || atom.kind == NodeKind::kEnd) {
        return Error("a repeated anchor is not supported");
      }
      RegexNode repeat{.kind = NodeKind::kRepeat, .min = min, .max = max};
      repeat.kids.push_back(std::move(atom));
      atom = std::move(repeat);
    }
  }

  // {3}, {3,} or {3,5}; a brace that is none of these stands for itself.
  Result<bool> Counts(int* min, int* max) {
    const size_t begin = at_;
    if (!Take("{") || !TakeNumber(kMostRepeats, min)) {
      at_ = begin;
      return false;
    }
    *max = *min;
    if (Take(",")) {
      *max = ExprPool::kNoLimit;
      if (Peek() != '}' && !TakeNumber(kMostRepeats, max)) {
        at_ = begin;
        return false;
      }
    }
    if (!Take("}")) {
      at_ = begin;
      return false;
    }
    if (*max != ExprPool::kNoLimit && *max < *min) return Error("counts out of order");
    if (*min >= kMostRepeats || *max >= kMostRepeats) return Error("too many repeats");
    return true;
  }

  Result<RegexNode> Class() {
    const bool negated = Take("^");
    CodePoints set;
    while (!Take("]")) {
      if (AtEnd()) return Error("missing ']'");
      TALON_RETURN_IF_ERROR(ClassItem(&set));
    }
    return Set(negated ? set.Complement() : set);
  }

  Status ClassItem(CodePoints* set) {
    CodePoints first;
    TALON_RETURN_IF_ERROR(ClassAtom(&first));
    const bool range = Peek() == '-' && at_ + 1 < source_.size() && source_[at_ + 1] != ']';
    const auto single = [](const CodePoints& points) {
      return points.ranges().size() == 1 && points.ranges()[0].first == points.ranges()[0].last;
    };
    if (!range || !single(first)) {
      set->Add(first);
      return OkStatus();
    }
    ++at_;
    CodePoints last;
    TALON_RETURN_IF_ERROR(ClassAtom(&last));
    if (!single(last)) {  // [a-\d] has a plain '-'
      set->Add(first);
      set->Add('-', '-');
      set->Add(last);
      return OkStatus();
    }
    const uint32_t low = first.ranges()[0].first;
    const uint32_t high = last.ranges()[0].first;
    if (low > high) return Error("range out of order");
    set->Add(low, high);
    return OkStatus();
  }

  Status ClassAtom(CodePoints* set) {
    if (AtEnd()) return Error("missing ']'");
    if (Take("\\")) return Escape(/*in_class=*/true, set);
    uint32_t point = 0;
    if (!DecodeUtf8(source_, &at_, &point)) return Error("malformed UTF-8");
    set->Add(point, point);
    return OkStatus();
  }

  // After the backslash.
  Status Escape(bool in_class, CodePoints* set) {
    if (AtEnd()) return Error("unfinished escape");
    uint32_t point = 0;
    const size_t begin = at_;
    if (!DecodeUtf8(source_, &at_, &point)) return Error("malformed UTF-8");
    if (NamedSet(point, set)) return OkStatus();
    if (point == 'x') return HexEscape(2, set);
    if (point == 'u') return HexEscape(4, set);
    if (point == 'b' && !in_class) return Error("word boundaries are not supported");
    if (const auto control = ControlCharacter(point)) {
      set->Add(*control, *control);
      return OkStatus();
    }
    const bool letter = (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
    if (letter || (point >= '1' && point <= '9')) {
      at_ = begin;
      return Error(letter ? "this escape is not supported" : "back references are not supported");
    }
    set->Add(point, point);
    return OkStatus();
  }

  Status HexEscape(int digits, CodePoints* set) {
    uint32_t point = 0;
    if (digits == 4 && Take("{")) {
      while (Peek() != '}' && point <= kLastCodePoint) TALON_RETURN_IF_ERROR(HexDigit(&point));
      if (!Take("}")) return Error("unfinished escape");
    } else {
      for (int i = 0; i < digits; ++i) TALON_RETURN_IF_ERROR(HexDigit(&point));
      if (point >= 0xD800 && point < 0xDC00 && Take("\\u")) {
        uint32_t low = 0;
        for (int i = 0; i < digits; ++i) TALON_RETURN_IF_ERROR(HexDigit(&low));
        if (low < 0xDC00 || low >= 0xE000) return Error("a lone surrogate");
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (point > kLastCodePoint) return Error("not a code point");
    set->Add(point, point);
    return OkStatus();
  }

  Status HexDigit(uint32_t* point) {
    const int value = TakeHexDigit();
    if (value < 0) return Error("not a hexadecimal digit");
    *point = *point * 16 + static_cast<uint32_t>(value);
    return OkStatus();
  }

  int depth_ = 0;
};

}  // namespace

Result<RegexNode> ParseRegex(std::string_view source) { return Parser(source).Parse(); }

}  // namespace talon
