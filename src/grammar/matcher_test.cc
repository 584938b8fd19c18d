#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>

#include "grammar/cursor.h"
#include "grammar/gbnf.h"
#include "grammar/part_grammar.h"
#include "grammar/schema/json_schema.h"

namespace talon {
namespace {

// Single bytes, and random strings of bytes that JSON has.
std::vector<std::string> RandomVocabulary(std::mt19937& random, int extra) {
  std::vector<std::string> tokens = {""};  // a special token
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  const std::string pieces[] = {"a", "b",  "Z", " ", "\"",   "{",    "}",    "[",
                                "]", ":",  ",", "1", "0",    "-",    ".",    "\\",
                                "n", "\n", "é", "😀", "\xc3", "true", "null", "name"};
  for (int i = 0; i < extra; ++i) {
    std::string token;
    for (uint32_t n = 1 + random() % 12; n > 0; --n) token += pieces[random() % std::size(pieces)];
    tokens.push_back(token);
  }
  return tokens;
}

// Masks by slices and the trie equal feeding every token's bytes, along random walks.
void ExpectMasksAreExact(std::unique_ptr<Grammar> grammar, int seed) {
  std::mt19937 random(seed);
  const TokenTrie trie(RandomVocabulary(random, 3000));
  Matcher matcher(std::move(grammar), &trie);
  for (int walk = 0; walk < 4; ++walk) {
    Matcher::StateId state = matcher.start();
    for (int step = 0; step < 25; ++step) {
      const TokenMask& mask = matcher.Allowed(state);
      std::vector<int32_t> allowed;
      for (int32_t token = 0; token < trie.vocabulary(); ++token) {
        const bool alive = matcher.Next(state, token) != Matcher::kDead;
        ASSERT_EQ(mask.Has(token), alive) << token << " '" << trie.bytes(token) << "'";
        if (alive) allowed.push_back(token);
      }
      ASSERT_EQ(mask.Count(), static_cast<int>(allowed.size()));
      ASSERT_TRUE(!allowed.empty() || matcher.Accepts(state));
      if (allowed.empty()) break;
      state = matcher.Next(state, allowed[random() % allowed.size()]);
    }
  }
}

TEST(MatcherTest, MasksEqualFeedingEachToken) {
  int seed = 0;
  for (const char* schema :
       {"{}", R"({"type": "string", "maxLength": 12})",
        R"({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "number",
            "minimum": -5, "maximum": 90}}, "required": ["name"], "additionalProperties":
            {"type": "array", "items": {"enum": ["a", true, null]}}})",
        R"({"type": "string", "pattern": "^(a|b| )*Z$"})", R"({"type": "string", "maxLength": 40})",
        R"({"type": "string", "minLength": 20, "maxLength": 300})",
        R"({"type": "object", "properties": {"a": {}, "ab": false, "name": {}, "namename": {}}})",
        R"({"type": "object", "patternProperties": {"^a": {"type": "null"}, "Z$": {}}})",
        R"({"type": "string", "pattern": "name", "maxLength": 30})"}) {
    auto grammar = CompileJsonSchema(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    ExpectMasksAreExact(std::move(*grammar), ++seed);
  }
  auto regex = RegexGrammar("[ab]{2,30}( [0-9]+)?");
  ASSERT_TRUE(regex.ok());
  ExpectMasksAreExact(std::move(*regex), ++seed);
}

TEST(MatcherTest, ForcedBytesAreThoseThatMustFollow) {
  const TokenTrie trie({"a"});
  auto grammar = CompileJsonSchema(
      R"({"type": "object", "properties": {"answer": {"enum": ["yes", "yell"]}},
          "required": ["answer"], "additionalProperties": false})",
      JsonSpacing::kCompact);
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(std::move(*grammar), &trie);
  EXPECT_EQ(matcher.Forced(matcher.start(), 100), R"({"answer":"ye)");
  EXPECT_EQ(matcher.Forced(matcher.start(), 3), "{\"a");
  const auto after = matcher.automaton().Next(matcher.start(), R"({"answer":"yel)");
  EXPECT_EQ(matcher.Forced(after, 100), "l\"}");
}

TEST(GbnfTest, GrammarsAsLlamaCppWritesThem) {
  const auto grammar = CompileGbnf(R"(
# a list of moves
root   ::= (move ", ")* move "."
move   ::= piece? [a-h] [1-8] ("=" [^a-z \n])? | "O-O" ("-O")? {0,1}
piece  ::= [KQRBN] "x"?
)");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Automaton automaton(grammar->get());
  const auto accepts = [&](const std::string& text) {
    const auto state = automaton.Next(automaton.start(), text);
    return state != Automaton::kDead && automaton.Accepts(state);
  };
  EXPECT_TRUE(accepts("e4, Nxf3, O-O-O, e8=Q."));
  EXPECT_TRUE(accepts("O-O."));
  EXPECT_FALSE(accepts("e4, ."));
  EXPECT_FALSE(accepts("e9."));
  EXPECT_FALSE(accepts("e8=q."));
}

TEST(GbnfTest, RecursionAndCounts) {
  const auto grammar = CompileGbnf("root ::= \"(\" root{0,2} \")\" | [0-9]{2}");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Automaton automaton(grammar->get());
  const auto accepts = [&](const std::string& text) {
    const auto state = automaton.Next(automaton.start(), text);
    return state != Automaton::kDead && automaton.Accepts(state);
  };
  EXPECT_TRUE(accepts("((12)(34()))"));
  EXPECT_FALSE(accepts("(()()())"));
  EXPECT_FALSE(accepts("(1)"));
  const std::string deep = std::string(3000, '(') + std::string(3000, ')');
  EXPECT_TRUE(accepts(deep));
}

// Building them took time by the square of their length, and the stack overflowed.
TEST(GbnfTest, LongSequences) {
  std::string rules = "root ::= \"" + std::string(100'000, 'a') + "\" \"b\" | x";
  for (int i = 0; i < 30'000; ++i) rules += i % 100 == 0 ? " x" : " \"c\"?";
  const auto grammar = CompileGbnf(rules + "\nx ::= \"x\" | \"y\" x");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Automaton automaton(grammar->get());
  const auto accepts = [&](const std::string& text) {
    return automaton.Accepts(automaton.Next(automaton.start(), text));
  };
  std::string text(300, 'x');
  EXPECT_FALSE(accepts(text));
  EXPECT_TRUE(accepts(text + "x"));
  EXPECT_TRUE(accepts("yx" + text.substr(1) + "ccx"));
}

TEST(GbnfTest, MistakesAreNamedWithTheirLine) {
  for (const auto& [source, why] : std::vector<std::pair<const char*, const char*>>{
           {"start ::= \"a\"", "'root' is missing"},
           {"root ::= a", "'a' is not defined"},
           {"root ::= root \"a\" | \"a\"", "left recursion"},
           {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
           {"root ::= \"a", "line 1"},
           {"root ::= [a", "']' is missing"},
           {"\nroot ::= (\"a\"", "')' is missing in line 2"},
           {"root = \"a\"", "'::=' is missing"},
           {"root ::= \"\\q\"", "unknown escape"},
           {"root ::= x\nx ::= \"a\" x", "no finite text"}}) {
    const auto grammar = CompileGbnf(source);
    ASSERT_FALSE(grammar.ok()) << source;
    EXPECT_NE(grammar.status().message().find(why), std::string::npos)
        << source << ": " << grammar.status().message();
  }
}

TEST(ChoiceTest, OneOfTheTexts) {
  EXPECT_FALSE(ChoiceGrammar({}).ok());
  const auto grammar = ChoiceGrammar({"red", "green", "re"});
  ASSERT_TRUE(grammar.ok());
  Automaton automaton(grammar->get());
  EXPECT_TRUE(automaton.Accepts(automaton.Next(automaton.start(), "re")));
  EXPECT_TRUE(automaton.Accepts(automaton.Next(automaton.start(), "green")));
  EXPECT_FALSE(automaton.Accepts(automaton.Next(automaton.start(), "gre")));
}

TEST(ChoiceTest, TextsAndTheirBytesAreLimited) {
  const auto error = [](std::vector<std::string> choices) {
    const auto grammar = ChoiceGrammar(std::move(choices));
    return grammar.ok() ? "" : grammar.status().message();
  };
  std::vector<std::string> many;
  for (int i = 0; i < 10'000; ++i) many.push_back(std::to_string(i));
  EXPECT_EQ(error(many), "");
  many.push_back("x");
  EXPECT_EQ(error(many), "choice: 10001 texts, limit 10000");
  const std::string half(128 * 1024, 'a');
  EXPECT_EQ(error({half, half}), "");
  EXPECT_EQ(error({half, half, "b"}), "choice: 262145 bytes, limit 262144");
}

// The tokenizer's own cut where it has one, else the longest tokens; special tokens as they are.
TEST(MatcherTest, ForcedTokens) {
  std::vector<std::string> bytes = {"n", "a", "m", "e", "na", "me", "nam", ":", "1", "2"};
  bytes.push_back(SpecialBytes("<call>"));
  const TokenTrie trie(bytes);
  const auto tokens_of = [&](const Matcher::Encoder& encode) {
    auto grammar = CompileParts(
        GrammarPart::Sequence(
            {GrammarPart::Literal("name:"), GrammarPart::Marker("<call>"),
             GrammarPart::Choice({GrammarPart::Literal("1"), GrammarPart::Literal("2")})}),
        JsonSpacing::kFlexible, trie);
    EXPECT_TRUE(grammar.ok());
    Matcher matcher(std::move(*grammar), &trie, encode);
    std::vector<int32_t> tokens;
    for (const auto& [token, last] : matcher.ForcedTokens(matcher.start(), 9)) {
      EXPECT_EQ(last, token == 10);
      tokens.push_back(token);
    }
    EXPECT_TRUE(matcher.IsForced(matcher.start(), 4));
    EXPECT_EQ(matcher.ForcedTokens(matcher.start(), 2).size(), 2u);
    return tokens;
  };
  EXPECT_EQ(tokens_of({}), (std::vector<int32_t>{6, 3, 7, 10}));
  EXPECT_EQ(tokens_of([](const std::string& text) {
              EXPECT_TRUE(std::string("name:").ends_with(text));
              return std::vector<int32_t>{4, 5, 7};
            }),
            (std::vector<int32_t>{4, 5, 7, 10}));
  EXPECT_EQ(tokens_of([](const std::string&) { return std::vector<int32_t>{8}; }),  // other text
            (std::vector<int32_t>{6, 3, 7, 10}));
}

// EOS may be among a request's stop tokens as well.
TEST(CursorTest, EndsThatAreGivenTwiceAreAllowedWhereTheTextMayEnd) {
  const TokenTrie trie({"a", "b", ""});
  const GrammarCursor cursor(std::make_shared<Matcher>(RegexGrammar("ab*").value(), &trie));
  const std::vector<int32_t> ends = {2, 2, 9, 128};  // the last is beyond the vocabulary
  std::vector<uint64_t> bits = {~uint64_t{0}, ~uint64_t{0}};
  cursor.Allowed(cursor.After({}, {}), ends, bits);
  EXPECT_EQ(bits, (std::vector<uint64_t>{0b001, 0}));
  cursor.Allowed(cursor.After(std::vector<int32_t>{0}, {}), ends, bits);
  EXPECT_EQ(bits, (std::vector<uint64_t>{1 << 9 | 0b110, 0}));
}

}  // namespace
}  // namespace talon
