#include "text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer/test_tokenizers.h"

namespace talon {
namespace {

using Strings = std::vector<std::string>;

// The parts of a text, added tokens in brackets.
Strings Parts(const Json& tokens, std::string_view text, bool normalized = false,
              const Normalizer& normalizer = {}) {
  const Result<AddedTokens> added = AddedTokens::Parse(tokens, normalizer, "added_tokens");
  if (!added.ok()) return {"error: " + added.status().message()};
  Strings parts;
  for (const AddedTokens::Part& part : added->Split(text, normalized)) {
    const std::string cut(text.substr(part.span.begin, part.span.size()));
    parts.push_back(part.token == nullptr ? cut : "[" + cut + "]");
  }
  return parts;
}

Json Token(const char* content, const char* flag = "special") {
  Json token = AddedTokenJson(5, content, false);
  token[flag] = true;
  return token;
}

TEST(AddedTokens, TheLongestOfTheLeftmostWins) {
  const Json tokens = Json::array({Token("<a"), Token("<a>"), Token("a>b")});
  EXPECT_EQ(Parts(tokens, "x<a>b<a <"), (Strings{"x", "[<a>]", "b", "[<a]", " <"}));
  EXPECT_EQ(Parts(tokens, "<a><a>"), (Strings{"[<a>]", "[<a>]"}));
  EXPECT_EQ(Parts(tokens, ""), Strings{});
  EXPECT_EQ(Parts(Json::array(), "<a>"), Strings{"<a>"});
}

TEST(AddedTokens, StripTakesBlanks) {
  EXPECT_EQ(Parts(Json::array({Token("<m>", "lstrip")}), "a \u3000<m> b"),
            (Strings{"a", "[ \u3000<m>]", " b"}));
  EXPECT_EQ(Parts(Json::array({Token("<m>", "rstrip")}), "a <m> \nb"),
            (Strings{"a ", "[<m> \n]", "b"}));
  Json both = Token("<m>", "lstrip");
  both["rstrip"] = true;
  EXPECT_EQ(Parts(Json::array({both}), "<m>  <m>"), (Strings{"[<m>  ]", "[<m>]"}));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const Json tokens = Json::array({Token("day", "single_word")});
  EXPECT_EQ(Parts(tokens, "day, monday days day"), (Strings{"[day]", ", monday days ", "[day]"}));
  EXPECT_EQ(Parts(tokens, "dayé -day-"), (Strings{"dayé -", "[day]", "-"}));
}

TEST(AddedTokens, NormalizedTokensAreSoughtInTheirNormalForm) {
  const Result<Normalizer> lower =
      Normalizer::Parse(Json::parse(R"({"type": "Lowercase"})"), "normalizer");
  const Json tokens = Json::array({Token("Day", "normalized"), Token("<S>")});
  EXPECT_EQ(Parts(tokens, "a day <S>", true, *lower), (Strings{"a ", "[day]", " <S>"}));
  EXPECT_EQ(Parts(tokens, "a Day <S>", false, *lower), (Strings{"a Day ", "[<S>]"}));
}

TEST(AddedTokens, ErrorsNameThePlace) {
  EXPECT_EQ(Parts(Json::array({{{"content", "a"}}}), "")[0], "error: added_tokens[0].id: missing");
  EXPECT_EQ(Parts(Json::array({{{"id", 1}}}), "")[0], "error: added_tokens[0].content: missing");
  EXPECT_EQ(Parts(Json::array({{{"id", 1}, {"content", "a"}, {"lstrip", 1}}}), "")[0],
            "error: added_tokens[0].lstrip: expected true or false, found number");
  EXPECT_EQ(Parts(Json::array({Token(std::string(70000, 'a').c_str())}), "")[0],
            "error: added_tokens[0]: token of 70000 bytes, limit 65536");
  EXPECT_EQ(Parts(3, "")[0], "error: added_tokens: expected an array, found number");
}

}  // namespace
}  // namespace talon
