// Parses regular expressions as JSON Schema and users write them (ECMA-262's syntax).
//
// What cannot be decided by a finite automaton, or would need the matcher's history, is refused by
// name: look-around, back references, word boundaries.
#ifndef TALON_GRAMMAR_REGEX_PARSER_H_
#define TALON_GRAMMAR_REGEX_PARSER_H_

#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/code_points.h"

namespace talon {

struct RegexNode {
  enum class Kind { kSet, kConcat, kAlternatives, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kConcat;    // kConcat without children: the empty string
  CodePoints set;               // kSet
  std::vector<RegexNode> kids;  // kConcat, kAlternatives; one for kRepeat
  int min = 0, max = 0;         // kRepeat; max may be ExprPool::kNoLimit

  bool is_empty() const { return kind == Kind::kConcat && kids.empty(); }
};

Result<RegexNode> ParseRegex(std::string_view source);

}  // namespace talon

#endif  // TALON_GRAMMAR_REGEX_PARSER_H_
