// A context-free grammar whose terminals are regular expressions over bytes.
//
// Built by the compilers of JSON Schema, regex and GBNF, then frozen by Finish(). Afterwards only
// the pool of expressions changes, as automata use it.
#ifndef TALON_GRAMMAR_GRAMMAR_H_
#define TALON_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/expr.h"

namespace talon {

struct Symbol {
  enum class Kind : uint8_t { kTerminal, kRule };
  Kind kind = Kind::kTerminal;
  int32_t id = 0;  // an ExprId, or the rule's number
  bool operator==(const Symbol&) const = default;
};

inline Symbol Terminal(ExprId expr) { return {Symbol::Kind::kTerminal, expr}; }
inline Symbol RuleSymbol(int rule) { return {Symbol::Kind::kRule, rule}; }

class Grammar {
 public:
  using Alternative = std::vector<Symbol>;
  struct Rule {
    std::string name;
    std::vector<Alternative> alternatives;
  };

  ExprPool& exprs() { return exprs_; }
  // A rule without alternatives yet.
  int AddRule(std::string name);
  void AddAlternative(int rule, Alternative symbols) {
    rules_[rule].alternatives.push_back(std::move(symbols));
  }
  size_t size() const { return rules_.size(); }

  // Removes alternatives that no finite text can match. Fails if nothing is left, or if a rule
  // begins with itself (left recursion).
  Status Finish(int start);

  int start() const { return start_; }
  const Rule& rule(int number) const { return rules_[number]; }

 private:
  Status RemoveUnproductive();
  Status CheckLeftRecursion() const;

  ExprPool exprs_;
  std::vector<Rule> rules_;
  int start_ = 0;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_GRAMMAR_H_
