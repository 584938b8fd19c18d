// What a request asks its answer to match, as it was written.
#ifndef TALON_GRAMMAR_GRAMMAR_SPEC_H_
#define TALON_GRAMMAR_GRAMMAR_SPEC_H_

#include <string>
#include <utility>
#include <vector>

namespace talon {

// Between tokens of JSON: nothing, a space, or a new line with up to 20 characters of indentation;
// or nothing at all.
enum class JsonSpacing { kFlexible, kCompact };

// A grammar put together of texts and schemas, such as the calls of tools in a model's format.
struct GrammarPart {
  enum class Kind {
    kLiteral,   // `text`
    kMarker,    // the special token that is written as `text`; the text itself if there is none
    kText,      // any text that has none of `without` and, white space aside, does not begin with
                // `text`
    kSchema,    // JSON that the schema `text` accepts
    kRegex,     // a text that matches the regex `text`
    kGbnf,      // a text of the grammar `text`
    kSequence,  // all of `parts`
    kChoice,    // one of `parts`
    kRepeat,    // `parts[0]`, which is not empty, once or more
  };
  Kind kind = Kind::kLiteral;
  std::string text;
  std::vector<std::string> without;
  std::vector<GrammarPart> parts;
  std::string name;      // name of kSchema, in messages
  bool lenient = false;  // a schema that cannot be enforced becomes any object

  static GrammarPart Literal(std::string text) {
    return {.kind = Kind::kLiteral, .text = std::move(text)};
  }
  static GrammarPart Marker(std::string text) {
    return {.kind = Kind::kMarker, .text = std::move(text)};
  }
  static GrammarPart Text(std::vector<std::string> without, std::string not_first = "") {
    return {.kind = Kind::kText, .text = std::move(not_first), .without = std::move(without)};
  }
  static GrammarPart Sequence(std::vector<GrammarPart> parts) {
    return {.kind = Kind::kSequence, .parts = std::move(parts)};
  }
  static GrammarPart Choice(std::vector<GrammarPart> parts) {
    return {.kind = Kind::kChoice, .parts = std::move(parts)};
  }
  static GrammarPart Optional(GrammarPart part) { return Choice({Literal(""), std::move(part)}); }
  static GrammarPart Repeat(GrammarPart part) {
    return {.kind = Kind::kRepeat, .parts = {std::move(part)}};
  }
  bool operator==(const GrammarPart&) const = default;
};

struct GrammarSpec {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kGbnf, kChoice, kParts };
  Kind kind = Kind::kNone;
  std::string source;                // the schema, regex or grammar
  std::vector<std::string> choices;  // kChoice
  GrammarPart part;                  // kParts
  JsonSpacing spacing = JsonSpacing::kFlexible;
  bool operator==(const GrammarSpec&) const = default;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_GRAMMAR_SPEC_H_
