#include "text/regex/regex.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

std::vector<std::string> Matches(const Regex& regex, std::string_view text) {
  std::vector<TextSpan> spans;
  const Status status = regex.FindAll(text, &spans);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::string> matches;
  for (const TextSpan& span : spans) matches.emplace_back(text.substr(span.begin, span.size()));
  return matches;
}

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  return regex.ok() ? Matches(*regex, text) : std::vector<std::string>{"(no regex)"};
}

using Strings = std::vector<std::string>;

TEST(Regex, UsesUnicodeProperties) {
  EXPECT_EQ(Matches(R"(\p{L}+)", "naïve Привет 日本 ßẞſK"),
            (Strings{"naïve", "Привет", "日本", "ßẞſK"}));
  EXPECT_EQ(Matches(R"(\p{N}+)", "a½b٣c³"), (Strings{"½", "٣", "³"}));
  EXPECT_EQ(Matches(R"(\d+)", "1²٣"), (Strings{"1", "٣"}));
}

TEST(Regex, MongolianVowelSeparatorIsNotASpace) {
  EXPECT_EQ(Matches(R"(\s)", "\u00A0\u2028\u3000\u0085\u180E\u200B"),
            (Strings{"\u00A0", "\u2028", "\u3000", "\u0085"}));
  EXPECT_EQ(Matches(R"(\S)", "\u00A0\u180E"), Strings{"\u180E"});
  EXPECT_EQ(Matches(R"([^\S])", "\u00A0\u180E"), Strings{"\u00A0"});
}

TEST(Regex, WordsHaveMarks) {
  EXPECT_EQ(Matches(R"(\w+)", "e\u0301a-b_c"), (Strings{"e\u0301a", "b_c"}));
  EXPECT_EQ(Matches(R"(\bb)", "b e\u0301b -b"), (Strings{"b", "b"}));
}

TEST(Regex, IgnoresCaseBeyondAscii) {
  EXPECT_EQ(Matches("(?i:'s|'ll)", "'S 'ſ 'LL 's"), (Strings{"'S", "'ſ", "'LL", "'s"}));
}

TEST(Regex, CaretAndDollarMatchAtLines) {
  EXPECT_EQ(Matches("^.+$", "one\r\ntwo"), (Strings{"one\r", "two"}));
}

TEST(Regex, EmptyMatchesAreTakenOnceAndNotAfterAnother) {
  EXPECT_EQ(Matches("x*", "axé"), (Strings{"", "x", ""}));
  std::vector<TextSpan> spans;
  ASSERT_TRUE(Regex::Literal("")->FindAll("éa", &spans).ok());
  EXPECT_EQ(spans, (std::vector<TextSpan>{{0, 0}, {2, 2}, {3, 3}}));
  EXPECT_TRUE(Matches("x*", "").empty());
}

TEST(Regex, LiteralsAreNotPatterns) {
  const Result<Regex> regex = Regex::Literal("a.\\E(");
  ASSERT_TRUE(regex.ok());
  EXPECT_EQ(Matches(*regex, "ab.\\E( a.\\E("), Strings{"a.\\E("});
}

TEST(Regex, ReplacesUpToTheBound) {
  const Result<Regex> regex = Regex::Compile(" {2,}");
  std::string text = "a  b    c d";
  ASSERT_TRUE(regex->ReplaceAll("▁", 100, &text).ok());
  EXPECT_EQ(text, "a▁b▁c d");
  std::string long_text(100, 'a');
  const Result<Regex> letter = Regex::Literal("a");
  EXPECT_EQ(letter->ReplaceAll("bb", 150, &long_text).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(long_text, std::string(100, 'a'));
}

TEST(Regex, InvalidPatternsAreErrorsThatShowThem) {
  const Result<Regex> regex = Regex::Compile("a(b");
  ASSERT_FALSE(regex.ok());
  EXPECT_NE(regex.status().message().find("a(b"), std::string::npos);
  EXPECT_FALSE(Regex::Compile(R"(\p{NoSuchProperty})").ok());
  EXPECT_FALSE(Regex::Compile(std::string(70000, 'a')).ok());
}

TEST(Regex, RunawayBacktrackingIsAnError) {
  const Result<Regex> regex = Regex::Compile("(?:(a|a|aa)+)+b");
  ASSERT_TRUE(regex.ok());
  std::vector<TextSpan> spans;
  EXPECT_EQ(regex->FindAll(std::string(60, 'a') + "xb", &spans).code(),
            StatusCode::kResourceExhausted);
}

TEST(Regex, LongRunsMatchInOnePiece) {
  const std::string text(300000, ' ');
  EXPECT_EQ(Matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", text), Strings{text});
  EXPECT_EQ(Matches(R"((?:ab|a)+)", std::string(300000, 'a')).size(), 1u);
}

}  // namespace
}  // namespace talon
