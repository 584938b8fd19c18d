#include "grammar/part_grammar.h"

#include <gtest/gtest.h>

#include "grammar/matcher.h"

namespace talon {
namespace {

using Part = GrammarPart;

constexpr int32_t kSpecial = 256;  // <call>
constexpr int32_t kOther = 257;    // <end>

TokenTrie MakeTrie() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens[255] = "";  // as every compiler has it: no text
  tokens.push_back(SpecialBytes("<call>"));
  tokens.push_back(SpecialBytes("<end>"));
  return TokenTrie(std::move(tokens));
}

// Whether the tokens match: bytes, and '@' in the place of <call>.
class Matches {
 public:
  explicit Matches(const Part& part) : trie_(MakeTrie()) {
    auto grammar = CompileParts(part, JsonSpacing::kFlexible, trie_);
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    matcher_ = std::make_unique<Matcher>(std::move(*grammar), &trie_);
  }
  // Each token on the way must also be in its mask.
  Matcher::StateId After(std::string_view text) {
    Matcher::StateId state = matcher_->start();
    for (const char byte : text) {
      const int32_t token = byte == '@' ? kSpecial : static_cast<unsigned char>(byte);
      const bool allowed = matcher_->Allowed(state).Has(token);
      state = matcher_->Next(state, token);
      EXPECT_EQ(allowed, state != Matcher::kDead);
      EXPECT_FALSE(matcher_->Allowed(state).Has(kOther));
    }
    return state;
  }
  bool operator()(std::string_view text) { return matcher_->Accepts(After(text)); }
  bool Begins(std::string_view text) { return After(text) != Matcher::kDead; }

 private:
  TokenTrie trie_;
  std::unique_ptr<Matcher> matcher_;
};

Part Schema(std::string schema) {
  return {.kind = Part::Kind::kSchema, .text = std::move(schema), .name = "tools[0]"};
}

TEST(PartGrammar, FreeTextUntilAMarkerThenASchema) {
  const Part call = Part::Sequence({Part::Marker("<tool>"), Schema(R"({"type": "integer"})")});
  Matches matches(Part::Sequence(
      {Part::Text({"<tool>"}), Part::Choice({Part::Literal(""), Part::Repeat(call)})}));
  EXPECT_TRUE(matches(""));
  EXPECT_TRUE(matches("any \xc3\xa9 < text <too"));
  EXPECT_FALSE(matches("text<tool>"));
  EXPECT_FALSE(matches.Begins("text<tool>x"));
  EXPECT_TRUE(matches("text<tool>12<tool>-3"));
  EXPECT_FALSE(matches.Begins("text<tool>12 and"));
  EXPECT_FALSE(matches.Begins("not UTF-8 \xc3("));
}

TEST(PartGrammar, MarkersAreSpecialTokensWhereTheVocabularyHasThem) {
  Matches matches(Part::Sequence(
      {Part::Text({"<call>"}), Part::Marker("<call>"), Schema(R"({"enum": [true]})")}));
  EXPECT_TRUE(matches("a@true"));
  EXPECT_FALSE(matches.Begins("a<call>"));  // spelled out it is not the token
  EXPECT_FALSE(matches.Begins("a@@"));
  EXPECT_FALSE(matches.Begins("\xff"));
}

TEST(PartGrammar, TextThatDoesNotBeginSo) {
  Matches matches(Part::Choice({Part::Text({}, "{"), Schema(R"({"type": "object"})")}));
  EXPECT_TRUE(matches("{\"a\": 1}"));
  EXPECT_FALSE(matches.Begins("{a"));
  EXPECT_FALSE(matches.Begins(" \n{"));
  EXPECT_TRUE(matches(" so {a"));
}

TEST(PartGrammar, AChoiceOfManyTexts) {
  std::vector<Part> texts = {Part::Literal("")};
  for (int i = 1; i < 10'000; ++i) texts.push_back(Part::Literal("v" + std::to_string(i)));
  const auto among = [&] { return Part::Sequence({Part::Literal("so "), Part::Choice(texts)}); };
  Matches matches(among());
  EXPECT_TRUE(matches("so "));
  EXPECT_TRUE(matches("so v9999"));
  EXPECT_FALSE(matches("so v"));
  EXPECT_FALSE(matches.Begins("so v0"));
  texts.push_back(Part::Literal("x"));
  EXPECT_EQ(CompileParts(among(), JsonSpacing::kFlexible, MakeTrie()).status().message(),
            "choice: 10001 texts, limit 10000");
}

TEST(PartGrammar, SchemasThatCannotBeEnforced) {
  Part part = Schema(R"({"type": "array", "uniqueItems": true})");
  const auto refused = CompileParts(part, JsonSpacing::kFlexible, MakeTrie());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("tools[0]"), std::string::npos);
  EXPECT_NE(refused.status().message().find("uniqueItems"), std::string::npos);
  part.lenient = true;
  Matches matches(part);
  EXPECT_TRUE(matches("{}"));
  EXPECT_FALSE(matches.Begins("["));
}

}  // namespace
}  // namespace talon
