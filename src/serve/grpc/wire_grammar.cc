#include "serve/grpc/wire_grammar.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace talon {
namespace {

// By GrammarSpec::Kind and GrammarPart::Kind.
constexpr std::array<std::string_view, 7> kKinds = {"none", "json_object", "json_schema", "regex",
                                                    "gbnf", "choice",      "parts"};
constexpr std::array<std::string_view, 9> kPartKinds = {
    "literal", "marker", "text", "schema", "regex", "gbnf", "sequence", "choice", "repeat"};

template <typename Kind, size_t kSize>
Result<Kind> KindOf(const std::array<std::string_view, kSize>& names, const std::string& name) {
  const auto at = std::ranges::find(names, name);
  if (at != names.end()) return static_cast<Kind>(at - names.begin());
  return InvalidArgument("BAD_GRAMMAR: kind '{}' is not known", name.substr(0, 32));
}

void WritePart(const GrammarPart& part, specsplit::GrammarPart* message) {
  message->set_kind(std::string(kPartKinds[static_cast<size_t>(part.kind)]));
  message->set_text(part.text);
  *message->mutable_without() = {part.without.begin(), part.without.end()};
  for (const GrammarPart& inner : part.parts) WritePart(inner, message->add_parts());
  message->set_name(part.name);
  message->set_lenient(part.lenient);
}

// As deep as a message that was parsed can be.
Result<GrammarPart> ReadPart(const specsplit::GrammarPart& message) {
  GrammarPart part{.text = message.text(),
                   .without = {message.without().begin(), message.without().end()},
                   .name = message.name(),
                   .lenient = message.lenient()};
  TALON_ASSIGN_OR_RETURN(part.kind, KindOf<GrammarPart::Kind>(kPartKinds, message.kind()));
  const int parts = message.parts_size();
  const bool repeats = part.kind == GrammarPart::Kind::kRepeat;
  const bool holds = repeats || part.kind == GrammarPart::Kind::kSequence ||
                     part.kind == GrammarPart::Kind::kChoice;
  if (holds ? parts == 0 || (repeats && parts > 1) : parts > 0) {
    return InvalidArgument("BAD_GRAMMAR: '{}' with {} parts", message.kind(), parts);
  }
  for (const specsplit::GrammarPart& inner : message.parts()) {
    TALON_ASSIGN_OR_RETURN(part.parts.emplace_back(), ReadPart(inner));
  }
  return part;
}

}  // namespace

void WriteGrammar(const GrammarSpec& grammar, specsplit::Grammar* message) {
  message->set_kind(std::string(kKinds[static_cast<size_t>(grammar.kind)]));
  message->set_source(grammar.source);
  *message->mutable_choices() = {grammar.choices.begin(), grammar.choices.end()};
  if (grammar.kind == GrammarSpec::Kind::kParts) WritePart(grammar.part, message->mutable_part());
  message->set_compact(grammar.spacing == JsonSpacing::kCompact);
}

Result<GrammarSpec> ReadGrammar(const specsplit::Grammar& message) {
  GrammarSpec grammar{
      .source = message.source(),
      .choices = {message.choices().begin(), message.choices().end()},
      .spacing = message.compact() ? JsonSpacing::kCompact : JsonSpacing::kFlexible};
  TALON_ASSIGN_OR_RETURN(grammar.kind, KindOf<GrammarSpec::Kind>(kKinds, message.kind()));
  if (grammar.kind == GrammarSpec::Kind::kParts) {
    TALON_ASSIGN_OR_RETURN(grammar.part, ReadPart(message.part()));
  }
  return grammar;
}

}  // namespace talon
