// From a grammar in GBNF, as llama.cpp writes it, to a grammar.
//
//   root  ::= "yes" | "no" (" because " reason)?
//   reason ::= [a-z ]{1,40}
#ifndef TALON_GRAMMAR_GBNF_H_
#define TALON_GRAMMAR_GBNF_H_

#include <memory>
#include <string_view>

#include "base/status.h"
#include "grammar/grammar.h"

namespace talon {

// The rule `root` is where it starts. Messages name the line.
Result<std::unique_ptr<Grammar>> CompileGbnf(std::string_view source);
// Adds it to a larger grammar and returns its first rule.
Result<int> AddGbnf(std::string_view source, Grammar* grammar);

// A text that matches the regex as a whole.
Result<std::unique_ptr<Grammar>> RegexGrammar(std::string_view regex);
// One of the texts.
Result<std::unique_ptr<Grammar>> ChoiceGrammar(std::vector<std::string> choices);

}  // namespace talon

#endif  // TALON_GRAMMAR_GBNF_H_
