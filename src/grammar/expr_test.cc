#include "grammar/expr.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "grammar/regex.h"

namespace talon {
namespace {

TEST(ExprTest, EqualExpressionsAreOne) {
  ExprPool pool;
  EXPECT_EQ(pool.Literal("abc"), pool.Concat(pool.Literal("ab"), pool.Literal("c")));
  EXPECT_EQ(pool.Or({pool.Byte('a'), pool.Byte('b')}), pool.Bytes(ByteSet::Range('a', 'b')));
  EXPECT_EQ(pool.Not(pool.Not(pool.Byte('a'))), pool.Byte('a'));
}

TEST(ExprTest, AnyOfIsAPrefixTree) {
  ExprPool pool;
  const ExprId any = pool.AnyOf({"stop", "start", "star", "", "up", "star"});
  for (const char* text : {"stop", "start", "star", "", "up"}) {
    EXPECT_TRUE(pool.Matches(any, text)) << text;
  }
  for (const char* text : {"st", "sta", "starts", "u", "s"}) {
    EXPECT_FALSE(pool.Matches(any, text)) << text;
  }
  EXPECT_EQ(pool.Derive(pool.AnyOf({"xya", "xyb"}), 'x'),
            pool.Concat(pool.Byte('y'), pool.Bytes(ByteSet::Range('a', 'b'))));
}

// Recursion by the bytes of a text crashed.
TEST(ExprTest, LongTextsDoNotOverflowTheStack) {
  ExprPool pool;
  const std::string text(20'000, 'a');
  const ExprId either = pool.Concat(pool.AnyOf({text + "b", text + "c"}), pool.Byte('!'));
  EXPECT_TRUE(pool.Matches(either, text + "c!"));
  EXPECT_FALSE(pool.Matches(either, text + "c"));
  const std::string longer(250'000, 'a');
  EXPECT_EQ(pool.Derive(pool.Concat(pool.Literal(longer), pool.Byte('b')), 'a'),
            pool.Literal(longer.substr(1) + "b"));
  EXPECT_FALSE(pool.Matches(pool.AnyOf({longer + "b", longer + "c"}), "ab"));
}

// Each byte of such a text leads to as many parts as there are left.
TEST(ExprTest, SequencesOfManyOptionalPartsAreBounded) {
  ExprPool pool;
  const std::vector<ExprId> parts(100'000, pool.Optional(pool.Byte('a')));
  const ExprId many = pool.Concat(pool.Sequence(parts), pool.Byte('b'));
  EXPECT_TRUE(pool.Matches(many, "b"));
  EXPECT_FALSE(pool.exhausted());
  EXPECT_FALSE(pool.Matches(many, "aab"));
  EXPECT_TRUE(pool.exhausted());
}

// Short texts and those that are far away are found; what a search cannot decide is neither.
TEST(ExprTest, SearchesFindTextsOrSayThatTheyDoNotKnow) {
  ExprPool pool;
  const auto any = [&](int min, int max) {
    return pool.Repeat(pool.Bytes(ByteSet::Range('a', 'z')), min, max);
  };
  const ExprId far = pool.And({any(3000, ExprPool::kNoLimit), pool.Not(pool.Literal("x"))});
  EXPECT_TRUE(pool.HasMatch(far));
  EXPECT_FALSE(pool.IsEmpty(far));
  const ExprId nothing = pool.And({any(0, 40), any(50, 60)});
  EXPECT_TRUE(pool.IsEmpty(nothing));
  EXPECT_FALSE(pool.HasMatch(nothing));
  const auto with = [&](char first, char last) {
    const ExprId begin = pool.Concat(any(0, ExprPool::kNoLimit), pool.Byte(first));
    const ExprId end = pool.Concat(pool.Byte(last), any(0, ExprPool::kNoLimit));
    return pool.Sequence({begin, any(17, 17), end});
  };
  const ExprId many_states = pool.And({with('a', 'b'), with('b', 'c'), with('c', 'a'), any(60, 61),
                                       pool.Not(with('z', 'z')), pool.Not(with('y', 'y'))});
  EXPECT_FALSE(pool.IsEmpty(many_states));
}

TEST(ExprTest, IntersectionAndComplement) {
  ExprPool pool;
  const ExprId letters = pool.Repeat(pool.Bytes(ByteSet::Range('a', 'z')), 0, ExprPool::kNoLimit);
  const ExprId not_cat = pool.And({letters, pool.Not(pool.AnyOf({"cat", "car"}))});
  EXPECT_TRUE(pool.Matches(not_cat, "ca"));
  EXPECT_TRUE(pool.Matches(not_cat, "cats"));
  EXPECT_FALSE(pool.Matches(not_cat, "cat"));
  EXPECT_FALSE(pool.Matches(not_cat, "C"));
  EXPECT_FALSE(pool.IsEmpty(not_cat));
  EXPECT_TRUE(pool.IsEmpty(pool.And({pool.Literal("ab"), pool.Literal("ac")})));
  EXPECT_TRUE(pool.IsEmpty(pool.And({letters, pool.Not(letters)})));
}

TEST(ExprTest, MultiplesOfNumbers) {
  ExprPool pool;
  for (const int64_t divisor : {1, 3, 7, 12}) {
    const ExprId expr = pool.Multiple(divisor, 0, /*started=*/false);
    for (int64_t number = 0; number < 200; ++number) {
      EXPECT_EQ(pool.Matches(expr, std::to_string(number)), number % divisor == 0) << number;
    }
    EXPECT_FALSE(pool.Matches(expr, ""));
  }
}

// An exponential number of states is met lazily and bounded.
TEST(ExprTest, ManyStatesAreBounded) {
  ExprPool pool;
  auto regex = CompileRegex("(?:a|b)*a(?:a|b){200}", &pool);
  ASSERT_TRUE(regex.ok());
  std::mt19937 random(3);
  ExprId state = *regex;
  for (int i = 0; i < 300'000 && state != ExprPool::kNone; ++i) {
    state = pool.Derive(state, random() % 2 == 0 ? 'a' : 'b');
  }
  EXPECT_TRUE(pool.exhausted());
  EXPECT_EQ(state, ExprPool::kNone);
}

// Random regexes of a few letters against the standard library's.
TEST(RegexTest, AgreesWithTheStandardLibrary) {
  std::mt19937 random(17);
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (depth <= 0 ? random() % 3 : random() % 9) {
      case 0:
        return "a";
      case 1:
        return "b";
      case 2:
        return "[ab]";
      case 3:
        return make(depth - 1) + make(depth - 1);
      case 4:
        return "(?:" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 5:
        return "(?:" + make(depth - 1) + ")*";
      case 6:
        return "(?:" + make(depth - 1) + ")?";
      case 7:
        return "(?:" + make(depth - 1) + "){1,2}";
      default:
        return "[^a]";
    }
  };
  int matches = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string source = make(3);
    ExprPool pool;
    const auto expr = CompileRegex(source, &pool);
    ASSERT_TRUE(expr.ok()) << source;
    if (round % 2 == 0) pool.Freeze();
    const std::regex truth(source);
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (uint32_t n = random() % 6; n > 0; --n) text.push_back("abc"[random() % 3]);
      EXPECT_EQ(pool.Matches(*expr, text), std::regex_match(text, truth)) << source << " " << text;
      matches += pool.Matches(*expr, text) ? 1 : 0;
    }
  }
  EXPECT_GT(matches, 1000);
}

TEST(ExprTest, TextThatIsAlwaysAllowed) {
  ExprPool pool;
  const ExprId letter = pool.Bytes(ByteSet::Range('a', 'z'));
  const ExprId text = pool.Repeat(letter, 0, ExprPool::kNoLimit);
  const ExprId quoted = pool.Concat(text, pool.Byte('"'));
  EXPECT_TRUE(pool.AllowsAllText(text, letter));
  EXPECT_TRUE(pool.AllowsAllText(quoted, letter));
  EXPECT_TRUE(
      pool.AllowsAllText(pool.And({quoted, pool.Not(pool.AnyOf({"a\"", "b\"", "\""}))}), letter));
  const ExprId key = pool.And({quoted, pool.Not(pool.Literal("name\""))});
  EXPECT_TRUE(pool.AllowsAllText(key, letter));
  EXPECT_TRUE(pool.AllowsAllText(pool.Concat(key, pool.Byte(':')), letter));
  EXPECT_FALSE(pool.AllowsAllText(pool.Repeat(letter, 0, 9), letter));
  EXPECT_FALSE(pool.AllowsAllText(pool.Literal("a"), letter));
  // Whatever begins with "no" is taken away: not a finite number of strings.
  const ExprId no = pool.Concat(pool.Literal("no"), text);
  EXPECT_FALSE(pool.AllowsAllText(pool.And({text, pool.Not(no)}), letter));
}

TEST(RegexTest, CharactersAreUtf8) {
  ExprPool pool;
  const auto any = CompileRegex(".", &pool);
  const auto range = CompileRegex("[à-ü€😀]", &pool);
  ASSERT_TRUE(any.ok() && range.ok());
  for (const char* text : {"a", "é", "€", "😀"}) EXPECT_TRUE(pool.Matches(*any, text)) << text;
  for (const char* text : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xc3", "ab", "\n"}) {
    EXPECT_FALSE(pool.Matches(*any, text)) << text;
  }
  EXPECT_TRUE(pool.Matches(*range, "é"));
  EXPECT_TRUE(pool.Matches(*range, "😀"));
  EXPECT_FALSE(pool.Matches(*range, "a"));
}

TEST(RegexTest, HexadecimalEscapesNameCodePoints) {
  ExprPool pool;
  for (const auto& [source, text] :
       std::vector<std::pair<const char*, const char*>>{{"\\x41", "A"},
                                                        {"\\u0041\\x42", "AB"},
                                                        {"\\u00e9", "é"},
                                                        {"\\u{e9}", "é"},
                                                        {"\\u{1F600}", "😀"},
                                                        {"\\ud83d\\ude00", "😀"},
                                                        {"[\\x41-\\u0043]", "B"}}) {
    const auto expr = CompileRegex(source, &pool);
    ASSERT_TRUE(expr.ok()) << source << ": " << expr.status().message();
    EXPECT_TRUE(pool.Matches(*expr, text)) << source;
    EXPECT_FALSE(pool.Matches(*expr, "a")) << source;
  }
  for (const char* source :
       {"\\x4", "\\x{41}", "\\u004", "\\u{41", "\\u{110000}", "\\ud83d\\u0041"}) {
    EXPECT_FALSE(CompileRegex(source, &pool).ok()) << source;
  }
}

TEST(RegexTest, AnchorsInPatterns) {
  ExprPool pool;
  const CharacterWriter utf8 = [&](const CodePoints& set) { return Utf8Of(set, &pool); };
  const auto matches = [&](const char* pattern, const char* text) {
    const auto expr = CompilePattern(pattern, utf8, &pool);
    EXPECT_TRUE(expr.ok()) << expr.status().message();
    return pool.Matches(*expr, text);
  };
  EXPECT_TRUE(matches("b", "abc"));
  EXPECT_FALSE(matches("^b", "abc"));
  EXPECT_TRUE(matches("^a|b$", "ax"));
  EXPECT_TRUE(matches("^a|b$", "xb"));
  EXPECT_FALSE(matches("^a|b$", "xbx"));
  EXPECT_TRUE(matches("(^|,)b(,|$)", "a,b"));
  EXPECT_FALSE(matches("(^|,)b(,|$)", "ab"));
}

TEST(RegexTest, WhatIsNotSupportedIsNamed) {
  for (const auto& [source, why] :
       std::vector<std::pair<const char*, const char*>>{{"(?=a)", "look-around"},
                                                        {"a\\b", "word boundaries"},
                                                        {"(a)\\1", "back references"},
                                                        {"a**b(", "missing ')'"},
                                                        {"[b-a]", "range out of order"},
                                                        {"a{2,1}", "out of order"},
                                                        {"*", "nothing to repeat"},
                                                        {"\\p{L}", "not supported"},
                                                        {"a^b", "anchor in the middle"},
                                                        {"\xff", "UTF-8"},
                                                        {"a{1,9999999}", "too many"}}) {
    ExprPool pool;
    const auto expr = CompileRegex(source, &pool);
    ASSERT_FALSE(expr.ok()) << source;
    EXPECT_NE(expr.status().message().find(why), std::string::npos) << expr.status().message();
  }
}

}  // namespace
}  // namespace talon
