#include "text/regex/oniguruma.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

std::string Rewrite(std::string_view pattern) {
  const Result<std::string> rewritten = PatternFromOniguruma(pattern);
  return rewritten.ok() ? *rewritten : "error: " + rewritten.status().message();
}

TEST(Oniguruma, KeepsWhatMeansTheSame) {
  for (const std::string_view pattern :
       {R"((?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})", R"(a*+b++c?+d*?)",
        R"(\x{3042}[一-龥])", R"((?<name>x)(?<=y)(?<!z)(?>w)(?=v)(?!u))", R"([]a-z\]\-]\(\[\{)",
        R"((?#note?)x)"}) {
    EXPECT_EQ(Rewrite(pattern), pattern);
  }
}

TEST(Oniguruma, RewritesWhatDiffers) {
  EXPECT_EQ(Rewrite(R"(\h+)"), "[0-9a-fA-F]+");
  EXPECT_EQ(Rewrite(R"(\H)"), "[^0-9a-fA-F]");
  EXPECT_EQ(Rewrite(R"(\v)"), R"(\x0b)");
  EXPECT_EQ(Rewrite(R"(\u3042[\u0041])"), R"(\x{3042}[\x{0041}])");
  EXPECT_EQ(Rewrite("a{,3}"), "a{0,3}");
  EXPECT_EQ(Rewrite("a{2}{x{}"), R"(a{2}\{x\{})");
  EXPECT_EQ(Rewrite("b(?:ab){1,3}+c"), "b(?:(?:ab){1,3})+c");
  EXPECT_EQ(Rewrite(R"(\p{N}{1,3}+)"), R"((?:\p{N}{1,3})+)");
  EXPECT_EQ(Rewrite("(?m:.)(?im-x)"), "(?s:.)(?is-x)");
  EXPECT_EQ(Rewrite("[[:alpha:]_]"), R"([\p{Alphabetic}_])");
  EXPECT_EQ(Rewrite(R"([\w-z])"), R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\-z])");
}

TEST(Oniguruma, NamesWhatItCannotRewrite) {
  EXPECT_NE(Rewrite("[a&&b]").find("nested character class at byte 2"), std::string::npos);
  EXPECT_NE(Rewrite("[a[b]]").find("nested character class"), std::string::npos);
  EXPECT_NE(Rewrite(R"([\W])").find(R"(\W inside a character class)"), std::string::npos);
  EXPECT_NE(Rewrite("[[:graph:]]").find("[:graph:]"), std::string::npos);
}

TEST(Oniguruma, SurvivesUnfinishedPatterns) {
  for (const std::string_view pattern : {"", "\\", "[", "[^", "[\\", "(", "(?", "(?<", "a{", "a{1,",
                                         "\\p{", "[[:", "\\u12", "{1}+", "+{2}+", ")", "a)+{3}+"}) {
    EXPECT_LE(Rewrite(pattern).size(), pattern.size() + 60) << pattern;
  }
}

}  // namespace
}  // namespace talon
