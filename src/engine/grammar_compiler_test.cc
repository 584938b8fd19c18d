#include "engine/grammar_compiler.h"

#include <gtest/gtest.h>

#include <string>

namespace talon {
namespace {

const Tokenizer& TestTokenizer() {
  static const auto tokenizer =
      Tokenizer::Load(std::string(TALON_SOURCE_DIR) + "/models/tiny/tokenizer.json");
  return **tokenizer;
}

GrammarSpec Regex(const std::string& regex) {
  return {.kind = GrammarSpec::Kind::kRegex, .source = regex};
}

TEST(GrammarCompiler, KeepsTheGrammarsUsedLast) {
  const GrammarCompiler compiler(&TestTokenizer());
  const auto first = *compiler.Compile(Regex("a+"));
  EXPECT_EQ(*compiler.Compile(Regex("a+")), first);
  EXPECT_NE(*compiler.Compile(Regex("b+")), first);
  for (size_t i = 0; i < GrammarCompiler::kMostKept; ++i) {
    ASSERT_TRUE(compiler.Compile(Regex("c{" + std::to_string(i + 1) + "}")).ok());
  }
  EXPECT_NE(*compiler.Compile(Regex("a+")), first);
}

TEST(GrammarCompiler, AWornGrammarIsCompiledAnew) {
  const GrammarCompiler compiler(&TestTokenizer());
  const auto matcher = *compiler.Compile(Regex("[ab]{30000}"));
  Matcher::StateId state = matcher->start();
  for (int i = 0; i < 20000; ++i) state = matcher->automaton().Next(state, 'a');
  (void)matcher->Allowed(state);
  EXPECT_TRUE(matcher->worn());
  EXPECT_NE(*compiler.Compile(Regex("[ab]{30000}")), matcher);
}

TEST(GrammarCompiler, ErrorsAreNotKept) {
  const GrammarCompiler compiler(&TestTokenizer());
  EXPECT_FALSE(compiler.Compile(Regex("(?=a)")).ok());
  EXPECT_FALSE(compiler.Compile(Regex("(?=a)")).ok());
  EXPECT_FALSE(GrammarCompiler(nullptr).Compile(Regex("a")).ok());
}

}  // namespace
}  // namespace talon
