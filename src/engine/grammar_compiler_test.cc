#include "engine/grammar_compiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "base/json.h"
#include "engine/test_engine.h"
#include "spec/grammar_drafter.h"
#include "text/tokenizer/test_tokenizers.h"

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

TEST(GrammarCompiler, TooManyAtOnceAreRefused) {
  const GrammarCompiler compiler(&TestTokenizer());
  const auto kept = *compiler.Compile(Regex("kept"));
  std::vector<CompileQueue::Turn> turns;
  for (int i = 0; i < CompileQueue::kMostRunning; ++i) {
    turns.push_back(std::move(compiler.queue().Enter()).value());
  }
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<Matcher>> compiled(CompileQueue::kMostWaiting);
  std::atomic<int> ended = 0;
  for (int i = 0; i < CompileQueue::kMostWaiting; ++i) {
    threads.emplace_back([&, i] {
      const auto matcher = compiler.Compile(Regex(i % 2 == 0 ? "same" : std::to_string(i)));
      if (matcher.ok()) compiled[i] = *matcher;
      ++ended;
    });
  }
  const CompileQueue& queue = compiler.queue();
  while (queue.waiting() + ended < CompileQueue::kMostWaiting) std::this_thread::yield();
  EXPECT_EQ(ended, 0);
  const auto refused = compiler.Compile(Regex("one more"));
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.status().message(), "too many grammars are being compiled; try again");
  EXPECT_EQ(*compiler.Compile(Regex("kept")), kept);
  EXPECT_EQ(queue.waiting(), CompileQueue::kMostWaiting);

  turns.clear();
  for (std::thread& thread : threads) thread.join();
  for (const auto& matcher : compiled) EXPECT_NE(matcher, nullptr);
  EXPECT_TRUE(compiler.Compile(Regex("one more")).ok());
  EXPECT_FALSE(compiler.Compile(Regex("(?=a)")).ok());
  EXPECT_EQ(queue.waiting(), 0);
}

// ---- Vocabularies with byte fallback, as Llama 2's ----

// "é" and "日" are tokens, "本" and "😀" need bytes.
const Tokenizer& Fallback() {
  static const auto tokenizer = ParseTokenizer(SentencePieceJson(
      {"▁", "a", "b", "é", "日", "\"", "{", "}", ":"}, {{"▁", "a"}, {"▁", "▁"}, {"{", "\""}}));
  return *tokenizer;
}

GrammarSpec Choice(std::vector<std::string> choices) {
  return {.kind = GrammarSpec::Kind::kChoice, .choices = std::move(choices)};
}

using Spellings = std::set<std::string>;

// The tokens that may follow those of `path`.
Spellings AllowedAfter(Matcher* matcher, const std::vector<std::string>& path) {
  Matcher::StateId state = matcher->start();
  for (const std::string& token : path) state = matcher->Next(state, *Fallback().TokenId(token));
  Spellings allowed;
  for (int32_t id = 0; id < Fallback().vocab_size(); ++id) {
    if (matcher->Allowed(state).Has(id)) allowed.emplace(Fallback().Token(id).value_or("?"));
  }
  return allowed;
}

TEST(ByteFallback, ByteTokensContinueACharacterAndNothingElse) {
  const GrammarCompiler compiler(&Fallback());
  const auto choice = *compiler.Compile(Choice({"é", "日本", "😀", "a b"}));
  const auto after = [&](const std::vector<std::string>& path) {
    return AllowedAfter(choice.get(), path);
  };
  EXPECT_EQ(after({}), (Spellings{"é", "<0xC3>", "日", "<0xE6>", "<0xF0>", "a", "<0x61>"}));
  EXPECT_EQ(after({"<0xC3>"}), Spellings{"<0xA9>"});
  EXPECT_EQ(after({"<0xE6>"}), Spellings{"<0x97>"});
  EXPECT_EQ(after({"日"}), Spellings{"<0xE6>"});
  EXPECT_EQ(after({"<0xE6>", "<0x97>", "<0xA5>", "<0xE6>"}), Spellings{"<0x9C>"});
  EXPECT_EQ(after({"<0xF0>", "<0x9F>", "<0x98>"}), Spellings{"<0x80>"});
  EXPECT_EQ(after({"日", "<0xE6>", "<0x9C>", "<0xAC>"}), Spellings{});
  EXPECT_EQ(after({"a"}), (Spellings{"▁", "<0x20>"}));
  EXPECT_EQ(after({"a", "▁"}), (Spellings{"b", "<0x62>"}));

  Spellings continuations;
  for (int byte = 0x80; byte < 0xC0; ++byte) continuations.insert(fmt::format("<0x{:02X}>", byte));
  const auto any = *compiler.Compile(Regex("[^x]*"));
  EXPECT_EQ(AllowedAfter(any.get(), {"a", "<0xC3>"}), continuations);
  const Spellings first = AllowedAfter(any.get(), {});
  for (const char* token : {"▁", "▁a", "<0xC3>", "<0xF0>", "<0x0A>"}) {
    EXPECT_TRUE(first.contains(token)) << token;
  }
  for (const char* token : {"<0x78>", "<0x80>", "<0xC0>", "<0xFF>", "<unk>", "</s>"}) {
    EXPECT_FALSE(first.contains(token)) << token;
  }
}

struct FallbackAnswer {
  std::string text;
  std::vector<int32_t> tokens;
  int64_t accepted = 0;
};

FallbackAnswer AnswerFor(const GrammarSpec& spec, const std::vector<int32_t>& prompt, int seed,
                         bool drafted) {
  const GrammarCompiler compiler(&Fallback());
  std::unique_ptr<Drafter> drafter;
  if (drafted) drafter = std::make_unique<GrammarDrafter>();
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160};
  options.step.budget = {.max_nodes = 8, .max_depth = 7, .top_k = 1};
  const auto engine = Engine::Create({.backend = Small().backend.get(),
                                      .target = Small().target.get(),
                                      .tokenizer = &Fallback(),
                                      .drafter = std::move(drafter)},
                                     options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  GenerateRequest request{.prompt = prompt};
  request.sampling.max_tokens = 100;
  request.sampling.temperature = 1.5f;
  request.sampling.seed = seed;
  request.sampling.grammar = *compiler.Compile(spec);
  const GenerateResult result = RunBatch(engine->get(), {request})[0];
  EXPECT_EQ(result.finish, FinishReason::kStop) << result.text;
  return {.text = result.text, .tokens = result.TokenIds(), .accepted = result.stats.accepted};
}

// With text before the answer and without, where the decoder would remove the first space.
TEST(ByteFallback, TextsMatchTheirGrammarWhateverIsDrafted) {
  const GrammarSpec schema{.kind = GrammarSpec::Kind::kJsonSchema,
                           .source = R"({"type": "object", "properties": {
      "é": {"enum": ["日本", "😀", " ab"]}, "b": {"type": "string", "maxLength": 3}},
      "required": ["é", "b"], "additionalProperties": false})"};
  const Spellings choices = {" a", "  a", "é", "日本", " 😀 a"};
  Spellings seen;
  int64_t accepted = 0;
  for (int seed = 0; seed < TestRounds(24); ++seed) {
    for (const auto& prompt : {std::vector<int32_t>{1}, Fallback().Encode("a é", true).value()}) {
      for (const bool drafted : {false, true}) {
        const auto chosen =
            AnswerFor(Choice({choices.begin(), choices.end()}), prompt, seed, drafted);
        EXPECT_TRUE(choices.contains(chosen.text)) << '"' << chosen.text << '"';
        seen.insert(chosen.text);
      }
      const FallbackAnswer plain = AnswerFor(schema, prompt, seed, false);
      const FallbackAnswer drafts = AnswerFor(schema, prompt, seed, true);
      EXPECT_EQ(drafts.tokens, plain.tokens);
      EXPECT_EQ(drafts.text, plain.text);
      accepted += drafts.accepted;
      const Json value = Json::parse(plain.text, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(value.is_object()) << plain.text;
      EXPECT_TRUE((Spellings{"日本", "😀", " ab"}).contains(value["é"])) << plain.text;
      EXPECT_EQ(plain.text.find("\uFFFD"), std::string::npos) << plain.text;
    }
  }
  EXPECT_GT(seen.size(), 1u);
  EXPECT_GT(accepted, 0);
  for (const std::string& text : choices) {
    EXPECT_EQ(AnswerFor(Choice({text}), {1}, /*seed=*/1, /*drafted=*/true).text, text);
  }
}

}  // namespace
}  // namespace talon
