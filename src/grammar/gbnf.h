// From a grammar in GBNF, as llama.cpp writes it, to a grammar.
//
//   root  ::= "yes" | "no" (" because " reason)?
//   reason ::= [a-z ]{1,40}
#ifndef TALON_GRAMMAR_GBNF_H_
#define TALON_GRAMMAR_GBNF_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"

namespace talon {

// The rule `root` is where it starts. Messages name the line.
Result<std::unique_ptr<Grammar>> CompileGbnf(std::string_view source);
// Adds it to a larger grammar and returns its first rule.
Result<int> AddGbnf(std::string_view source, Grammar* grammar);

// A text that matches the regex as a whole.
Result<std::unique_ptr<Grammar>> RegexGrammar(std::string_view regex);
// One of the texts; at most so many, and bytes of them all.
inline constexpr size_t kMostChoices = 10'000;
inline constexpr size_t kMostChoiceBytes = 256 * 1024;
Result<std::unique_ptr<Grammar>> ChoiceGrammar(std::vector<std::string> choices);
// The same as an expression.
Result<ExprId> CompileChoice(std::vector<std::string> choices, ExprPool* pool);

}  // namespace talon

#endif  // TALON_GRAMMAR_GBNF_H_
