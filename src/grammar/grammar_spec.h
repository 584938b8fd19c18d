// What a request asks its answer to match, as it was written.
#ifndef TALON_GRAMMAR_GRAMMAR_SPEC_H_
#define TALON_GRAMMAR_GRAMMAR_SPEC_H_

#include <string>
#include <vector>

namespace talon {

// Between tokens of JSON: nothing, a space, or a new line with up to 20 characters of indentation;
// or nothing at all.
enum class JsonSpacing { kFlexible, kCompact };

struct GrammarSpec {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kGbnf, kChoice };
  Kind kind = Kind::kNone;
  std::string source;                // the schema, regex or grammar
  std::vector<std::string> choices;  // kChoice
  JsonSpacing spacing = JsonSpacing::kFlexible;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_GRAMMAR_SPEC_H_
