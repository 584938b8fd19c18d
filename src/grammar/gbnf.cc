#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/code_points.h"
#include "grammar/regex.h"
#include "grammar/scanner.h"

namespace talon {
namespace {

constexpr size_t kLongestSource = 256 * 1024;
constexpr int kDeepest = 100;
constexpr int kMostRepeats = 100'000;
constexpr size_t kMostRules = 300'000;

// A part of a rule. As long as it refers to no rule it is one expression, which is cheaper.
struct Part {
  bool regular = true;
  ExprId expr = ExprPool::kEmpty;
  Grammar::Alternative symbols;  // else

  void AppendTo(Grammar::Alternative* all) const {
    if (regular) {
      all->push_back(Terminal(expr));
    } else {
      all->insert(all->end(), symbols.begin(), symbols.end());
    }
  }
};

class Parser : private Scanner {
 public:
  Parser(std::string_view source, Grammar* grammar)
      : Scanner(source),
        grammar_(*grammar),
        pool_(grammar->exprs()),
        defined_(grammar->size(), true) {}

  // The number of the rule `root`.
  Result<int> Parse() {
    if (source_.size() > kLongestSource) {
      return InvalidArgument("grammar: {} bytes, limit {}", source_.size(), kLongestSource);
    }
    for (Skip(/*lines=*/true); !AtEnd(); Skip(true)) TALON_RETURN_IF_ERROR(ParseRule());
    for (const auto& [name, rule] : rules_) {
      if (!defined_[rule]) return InvalidArgument("grammar: rule '{}' is not defined", name);
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return InvalidArgument("grammar: rule 'root' is missing");
    return root->second;
  }

 private:
  Status Error(std::string_view what) const {
    const auto line =
        std::count(source_.begin(), source_.begin() + static_cast<int64_t>(at_), '\n');
    return InvalidArgument("grammar: {} in line {}", what, line + 1);
  }
  // Spaces and comments; new lines too where a rule cannot end.
  void Skip(bool lines) {
    while (!AtEnd()) {
      const char next = Peek();
      if (next == '#') {
        while (!AtEnd() && Peek() != '\n' && Peek() != '\r') ++at_;
      } else if (next == ' ' || next == '\t' || (lines && (next == '\n' || next == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool IsNameByte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string TakeName() {
    const size_t begin = at_;
    while (IsNameByte(Peek())) ++at_;
    return std::string(source_.substr(begin, at_ - begin));
  }
  int RuleOf(const std::string& name) {
    const auto [at, is_new] = rules_.try_emplace(name, 0);
    if (is_new) at->second = NewRule(name);
    return at->second;
  }
  int NewRule(const std::string& name) {
    defined_.push_back(false);
    return grammar_.AddRule(name);
  }

  Status ParseRule() {
    const std::string name = TakeName();
    if (name.empty()) return Error("a rule's name is missing");
    Skip(false);
    if (!Take("::=")) return Error("'::=' is missing");
    Skip(true);
    const int rule = RuleOf(name);
    if (defined_[rule]) return Error(fmt::format("rule '{}' is defined twice", name));
    defined_[rule] = true;
    TALON_RETURN_IF_ERROR(ParseAlternatives(rule, /*nested=*/false));
    if (!AtEnd() && Peek() != '\n' && Peek() != '\r') return Error("a new line is missing");
    return OkStatus();
  }

  Status ParseAlternatives(int rule, bool nested) {
    if (++depth_ > kDeepest) return Error("too deeply nested");
    for (;;) {
      TALON_ASSIGN_OR_RETURN(const Part part, ParseSequence(nested));
      Grammar::Alternative symbols;
      part.AppendTo(&symbols);
      grammar_.AddAlternative(rule, std::move(symbols));
      Skip(nested);
      if (!Take("|")) break;
      Skip(true);
    }
    --depth_;
    return OkStatus();
  }

  Result<Part> ParseSequence(bool nested) {
    Part all{.regular = false};
    std::vector<ExprId> run;  // regular items, which become one
    for (Skip(nested); !AtEnd(); Skip(nested)) {
      const char next = Peek();
      if (next == '|' || next == ')' || next == '\n' || next == '\r') break;
      TALON_ASSIGN_OR_RETURN(Part one, ParseItem());
      TALON_ASSIGN_OR_RETURN(const Part repeated, ParseRepeats(std::move(one), nested));
      if (grammar_.size() > kMostRules) return Error("too many rules");
      if (repeated.regular) {
        run.push_back(repeated.expr);
      } else {
        if (!run.empty()) all.symbols.push_back(Terminal(pool_.Sequence(std::exchange(run, {}))));
        repeated.AppendTo(&all.symbols);
      }
    }
    if (all.symbols.empty()) return Regular(pool_.Sequence(run));
    if (!run.empty()) all.symbols.push_back(Terminal(pool_.Sequence(run)));
    return all;
  }

  Result<Part> ParseItem() {
    if (Take("\"")) return ParseLiteral();
    if (Take("[")) return ParseClass();
    if (Take(".")) return Regular(Utf8Of(CodePoints::All(), &pool_));
    if (Take("(")) {
      const int rule = NewRule("group");
      TALON_RETURN_IF_ERROR(ParseAlternatives(rule, /*nested=*/true));
      if (!Take(")")) return Error("')' is missing");
      return GroupPart(rule);
    }
    if (!IsNameByte(Peek())) return Error(fmt::format("unexpected '{}'", Peek()));
    return Part{.regular = false, .symbols = {RuleSymbol(RuleOf(TakeName()))}};
  }

  static Part Regular(ExprId expr) { return {.expr = expr}; }

  // A group whose alternatives are all regular is one expression.
  Part GroupPart(int rule) {
    std::vector<ExprId> exprs;
    for (const Grammar::Alternative& one : grammar_.rule(rule).alternatives) {
      if (one.size() != 1 || one[0].kind != Symbol::Kind::kTerminal) {
        return {.regular = false, .symbols = {RuleSymbol(rule)}};
      }
      exprs.push_back(one[0].id);
    }
    return Regular(pool_.Or(std::move(exprs)));
  }

  Result<Part> ParseLiteral() {
    std::string text;
    while (!Take("\"")) {
      if (AtEnd() || Peek() == '\n') return Error("an unfinished literal");
      TALON_ASSIGN_OR_RETURN(const uint32_t point, ParseCharacter());
      AppendUtf8(point, &text);
    }
    return Regular(pool_.Literal(text));
  }

  Result<Part> ParseClass() {
    const bool negated = Take("^");
    CodePoints set;
    while (!Take("]")) {
      if (AtEnd() || Peek() == '\n') return Error("']' is missing");
      TALON_ASSIGN_OR_RETURN(const uint32_t first, ParseCharacter());
      uint32_t last = first;
      if (Peek() == '-' && at_ + 1 < source_.size() && source_[at_ + 1] != ']') {
        ++at_;
        TALON_ASSIGN_OR_RETURN(last, ParseCharacter());
      }
      if (last < first) return Error("a range out of order");
      set.Add(first, last);
    }
    return Regular(Utf8Of(negated ? set.Complement() : set, &pool_));
  }

  Result<uint32_t> ParseCharacter() {
    uint32_t point = 0;
    if (!DecodeUtf8(source_, &at_, &point)) return Error("malformed UTF-8");
    if (point != '\\') return point;
    if (AtEnd()) return Error("an unfinished escape");
    const char escape = source_[at_++];
    switch (escape) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return ParseHex(2);
      case 'u':
        return ParseHex(4);
      case 'U':
        return ParseHex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<uint32_t>(escape);
      default:
        return Error(fmt::format("an unknown escape '\\{}'", escape));
    }
  }

  Result<uint32_t> ParseHex(int digits) {
    uint64_t point = 0;
    for (int i = 0; i < digits; ++i) {
      const int value = TakeHexDigit();
      if (value < 0) return Error("not a hexadecimal digit");
      point = point * 16 + static_cast<uint64_t>(value);
    }
    if (point > kLastCodePoint) return Error("not a code point");
    return static_cast<uint32_t>(point);
  }

  Result<Part> ParseRepeats(Part part, bool nested) {
    for (;;) {
      Skip(nested);
      int min = 0;
      int max = ExprPool::kNoLimit;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Take("{")) {
        TALON_RETURN_IF_ERROR(ParseCounts(&min, &max));
      } else {
        return part;
      }
      part = Repeated(part, min, max);
    }
  }

  Status ParseCounts(int* min, int* max) {
    if (!TakeNumber(kMostRepeats + 1, min)) *min = 0;
    *max = *min;
    if (Take(",") && !TakeNumber(kMostRepeats + 1, max)) *max = ExprPool::kNoLimit;
    if (!Take("}")) return Error("'}' is missing");
    if (*max != ExprPool::kNoLimit && *max < *min) return Error("counts out of order");
    if (*min > kMostRepeats || *max > kMostRepeats) return Error("too many repeats");
    return OkStatus();
  }

  // x{2,4} becomes x x (x (x)?)?, and x* a rule that goes on with itself.
  Part Repeated(const Part& part, int min, int max) {
    if (part.regular) return Regular(pool_.Repeat(part.expr, min, max));
    const int count = max == ExprPool::kNoLimit ? min : max;
    int rest = -1;
    for (int i = count; i >= 0; --i) {
      const int rule = NewRule("repeat");
      if (i >= min) grammar_.AddAlternative(rule, {});
      if (i < count || max == ExprPool::kNoLimit) {
        Grammar::Alternative symbols = part.symbols;
        symbols.push_back(RuleSymbol(i == count ? rule : rest));
        grammar_.AddAlternative(rule, std::move(symbols));
      }
      rest = rule;
    }
    return {.regular = false, .symbols = {RuleSymbol(rest)}};
  }

  int depth_ = 0;
  Grammar& grammar_;
  ExprPool& pool_;
  std::map<std::string, int> rules_;
  std::vector<bool> defined_;  // by the rule's number; only named ones are asked for
};

Result<std::unique_ptr<Grammar>> OneTerminal(std::unique_ptr<Grammar> grammar, ExprId expr,
                                             const char* name) {
  const int rule = grammar->AddRule(name);
  grammar->AddAlternative(rule, {Terminal(expr)});
  TALON_RETURN_IF_ERROR(grammar->Finish(rule));
  return grammar;
}

}  // namespace

Result<int> AddGbnf(std::string_view source, Grammar* grammar) {
  return Parser(source, grammar).Parse();
}

Result<std::unique_ptr<Grammar>> CompileGbnf(std::string_view source) {
  auto grammar = std::make_unique<Grammar>();
  TALON_ASSIGN_OR_RETURN(const int root, AddGbnf(source, grammar.get()));
  TALON_RETURN_IF_ERROR(grammar->Finish(root).WithContext("grammar"));
  return grammar;
}

Result<std::unique_ptr<Grammar>> RegexGrammar(std::string_view regex) {
  auto grammar = std::make_unique<Grammar>();
  TALON_ASSIGN_OR_RETURN(const ExprId expr, CompileRegex(regex, &grammar->exprs()));
  return OneTerminal(std::move(grammar), expr, "regex");
}

Result<std::unique_ptr<Grammar>> ChoiceGrammar(std::vector<std::string> choices) {
  auto grammar = std::make_unique<Grammar>();
  TALON_ASSIGN_OR_RETURN(const ExprId expr, CompileChoice(std::move(choices), &grammar->exprs()));
  return OneTerminal(std::move(grammar), expr, "choice");
}

Result<ExprId> CompileChoice(std::vector<std::string> choices, ExprPool* pool) {
  if (choices.empty()) return InvalidArgument("choice: an empty list");
  if (choices.size() > kMostChoices) {
    return InvalidArgument("choice: {} texts, limit {}", choices.size(), kMostChoices);
  }
  size_t bytes = 0;
  for (const std::string& each : choices) bytes += each.size();
  if (bytes > kMostChoiceBytes) {
    return InvalidArgument("choice: {} bytes, limit {}", bytes, kMostChoiceBytes);
  }
  return pool->AnyOf(std::move(choices));
}

}  // namespace talon
