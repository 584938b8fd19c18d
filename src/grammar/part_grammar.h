// From a GrammarPart to a grammar.
#ifndef TALON_GRAMMAR_PART_GRAMMAR_H_
#define TALON_GRAMMAR_PART_GRAMMAR_H_

#include <memory>

#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/grammar_spec.h"
#include "grammar/token_trie.h"

namespace talon {

// `trie` says which markers are special tokens.
Result<std::unique_ptr<Grammar>> CompileParts(const GrammarPart& part, JsonSpacing spacing,
                                              const TokenTrie& trie);

}  // namespace talon

#endif  // TALON_GRAMMAR_PART_GRAMMAR_H_
