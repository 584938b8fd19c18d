// Answers that must match a grammar: always complete and right, and the same tokens whatever was
// drafted.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/test_engine.h"
#include "grammar/gbnf.h"
#include "grammar/schema/json_schema.h"
#include "spec/drafter_list.h"
#include "spec/drafters/registry.h"
#include "spec/grammar_drafter.h"

namespace talon {
namespace {

// Bytes for the model's tokens, which has no tokenizer: all single bytes, then pieces of JSON.
const TokenTrie& Vocabulary() {
  static const TokenTrie trie = [] {
    std::mt19937 random(5);
    const std::string pieces[] = {"\"",   "{", "}",  "[", "]", ":",    ",",    " ",   "a", "b",
                                  "name", "1", "23", "-", ".", "true", "null", "\\n", "é", "\n"};
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(std::string(1, static_cast<char>(byte)));
    while (bytes.size() < kVocabulary) {
      std::string text;
      for (uint32_t n = 1 + random() % 4; n > 0; --n) text += pieces[random() % std::size(pieces)];
      bytes.push_back(text);
    }
    for (const int eos : Small().target->config().eos_token_ids) bytes[eos] = "";
    return TokenTrie(std::move(bytes));
  }();
  return trie;
}

std::unique_ptr<Grammar> RandomGrammar(std::mt19937& random) {
  const std::string leaves[] = {R"({"type": "integer", "minimum": -20, "maximum": 300})",
                                R"({"type": "boolean"})",
                                R"({"enum": ["red", "green", 7, null]})",
                                R"({"type": "string", "maxLength": 5})",
                                R"({"type": "string", "pattern": "^[a-c]{1,4}$"})",
                                R"({"type": "null"})"};
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    const uint32_t kind = depth == 0 ? 0 : random() % 4;
    if (kind == 1) {
      return R"({"type": "array", "items": )" + make(depth - 1) + R"(, "maxItems": 3})";
    }
    if (kind == 2) return R"({"anyOf": [)" + make(depth - 1) + ", " + make(depth - 1) + "]}";
    if (kind == 3) {
      return R"({"type": "object", "properties": {"name": )" + make(depth - 1) + R"(, "b": )" +
             make(depth - 1) + R"(}, "required": ["name"], "additionalProperties": false})";
    }
    return leaves[random() % std::size(leaves)];
  };
  auto grammar = random() % 8 == 0 ? CompileGbnf("root ::= (\"a\" | \"b\" [0-9]{1,3}){1,6} \".\"")
                                   : CompileJsonSchema(make(2));
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return std::move(*grammar);
}

std::string TextOf(const GenerateResult& result) {
  std::string text;
  for (const int32_t token : result.TokenIds()) text += Vocabulary().bytes(token);
  return text;
}

struct Case {
  std::vector<GenerateRequest> requests;
  std::vector<std::shared_ptr<Matcher>> grammars;
};

Case RandomCase(int seed) {
  std::mt19937 random(seed);
  Case result;
  for (int i = 0; i < 4; ++i) {
    auto matcher = std::make_shared<Matcher>(RandomGrammar(random), &Vocabulary());
    GenerateRequest request{
        .prompt = RandomPrompt(random, 5 + static_cast<int>(random() % 20), kVocabulary)};
    request.sampling.max_tokens = 90;
    request.sampling.grammar = matcher;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.temperature = 1.0f;
    if (random() % 4 == 0) request.sampling.logprobs = 2;
    if (random() % 4 == 0) request.sampling.repetition_penalty = 1.3f;
    result.requests.push_back(std::move(request));
    result.grammars.push_back(std::move(matcher));
  }
  return result;
}

EngineOptions GrammarOptions(std::mt19937& random) {
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160, .max_sequences = 3};
  options.step.budget = {.max_nodes = 12, .max_depth = 6, .top_k = 2};
  options.step.nwor = random() % 4 != 0;
  if (random() % 3 == 0) options.step.scv_chunk_size = 3;
  options.prefix_cache = random() % 2 == 0;
  return options;
}

TEST(GrammarIdentity, AnswersMatchAndDraftsChangeNothing) {
  int complete = 0, cut = 0;
  int64_t accepted = 0;
  const int rounds = TestRounds(120);
  for (int seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(1000 + seed);
    const Case plain_case = RandomCase(seed);
    const auto plain =
        RunBatch(Small().MakeEngine(GrammarOptions(random)).get(), plain_case.requests);
    std::vector<std::vector<int32_t>> answers;
    for (size_t i = 0; i < plain.size(); ++i) {
      Matcher& matcher = *plain_case.grammars[i];
      const std::string text = TextOf(plain[i]);
      const auto state = matcher.automaton().Next(matcher.start(), text);
      ASSERT_NE(state, Matcher::kDead) << text;
      if (plain[i].finish == FinishReason::kStop) {
        EXPECT_TRUE(matcher.Accepts(state)) << text;
        ++complete;
      } else {
        ASSERT_EQ(plain[i].finish, FinishReason::kLength) << FinishReasonName(plain[i].finish);
        ++cut;
      }
      std::vector<int32_t> answer = plain_case.requests[i].prompt;
      for (const int32_t token : plain[i].TokenIds()) answer.push_back(token);
      answers.push_back(std::move(answer));
    }
    const Case again = RandomCase(seed);
    const auto engine = Small().MakeEngine(
        GrammarOptions(random), std::make_unique<OracleDrafter>(answers, kVocabulary, 0.7, seed));
    const auto drafted = RunBatch(engine.get(), again.requests);
    for (size_t i = 0; i < plain.size(); ++i) {
      SCOPED_TRACE(std::to_string(seed) + " " + std::to_string(i));
      ExpectSameBits(drafted[i], plain[i]);
      accepted += drafted[i].stats.accepted;
    }
  }
  EXPECT_GT(complete, rounds);  // most of four for each
  EXPECT_GT(accepted, rounds);
  EXPECT_LT(cut, complete);
}

// A request that is preempted starts again in the middle of its answer.
TEST(GrammarIdentity, PreemptionKeepsTheAnswer) {
  const auto requests = [] {
    std::vector<GenerateRequest> all;
    for (int i = 0; i < 4; ++i) {
      std::mt19937 random(40 + i);
      all.push_back({.prompt = RandomPrompt(random, 8, kVocabulary)});
      SamplingParams& sampling = all.back().sampling;
      sampling.max_tokens = 90;
      sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
      sampling.seed = 7 + i;
      sampling.logprobs = 2;
      sampling.grammar = std::make_shared<Matcher>(
          std::move(*RegexGrammar("([a-z]{4} [0-9]{3},){8}\\.")), &Vocabulary());
    }
    return all;
  };
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160, .max_sequences = 4};
  options.step.budget = {.max_nodes = 12, .max_depth = 6, .top_k = 2};
  const auto roomy = RunBatch(Small().MakeEngine(options).get(), requests());
  options.kv_tokens = 160;
  const auto tight = Small().MakeEngine(options, std::make_unique<GrammarDrafter>());
  const auto preempted = RunBatch(tight.get(), requests());
  EXPECT_GT(tight->metrics().Total(Counter::kRequestPreemptions), 0);
  for (size_t i = 0; i < roomy.size(); ++i) {
    EXPECT_EQ(roomy[i].finish, FinishReason::kStop) << TextOf(roomy[i]);
    ExpectSameBits(roomy[i], preempted[i]);
  }
}

// Forced tokens alone and beside another drafter: the same tokens, and many of them accepted.
TEST(GrammarIdentity, ForcedTokensAsDrafts) {
  const int rounds = TestRounds(40);
  int64_t accepted = 0, drafted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(2000 + seed);
    const auto plain =
        RunBatch(Small().MakeEngine(GrammarOptions(random)).get(), RandomCase(seed).requests);
    for (const char* drafters : {"GRAMMAR", "SUFFIX,GRAMMAR"}) {
      auto drafter = MakeDrafter(*DrafterList::Parse(drafters), {}, {});
      ASSERT_TRUE(drafter.ok());
      const bool alone = (*drafter)->name() == "GRAMMAR";
      const auto results =
          RunBatch(Small().MakeEngine(GrammarOptions(random), std::move(*drafter)).get(),
                   RandomCase(seed).requests);
      for (size_t i = 0; i < plain.size(); ++i) {
        SCOPED_TRACE(std::string(drafters) + " " + std::to_string(seed));
        ExpectSameBits(results[i], plain[i]);
        if (!alone) continue;
        accepted += results[i].stats.accepted;
        drafted += results[i].stats.drafted;
      }
    }
  }
  EXPECT_GT(drafted, rounds);
  EXPECT_GT(accepted, 0);
}

// Where the vocabulary leaves one way to write a forced text, all of it is accepted.
TEST(GrammarIdentity, ForcedTextIsAcceptedAndCounted) {
  std::mt19937 random(3);
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160};
  options.step.budget = {.max_nodes = 8, .max_depth = 7, .top_k = 1};
  const auto engine = Small().MakeEngine(options, std::make_unique<GrammarDrafter>());
  GenerateRequest request{.prompt = RandomPrompt(random, 9, kVocabulary)};
  request.sampling.max_tokens = 60;
  request.sampling.grammar =  // no piece of the vocabulary has an x
      std::make_shared<Matcher>(std::move(*RegexGrammar("x{24}[yz]")), &Vocabulary());
  const GenerateResult result = RunBatch(engine.get(), {request})[0];
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_EQ(TextOf(result).substr(0, 24), std::string(24, 'x'));
  EXPECT_EQ(result.stats.accepted, result.stats.drafted);
  EXPECT_GE(result.stats.accepted, 18);
  EXPECT_EQ(engine->metrics().Get(Counter::kGrammarTokens, "forced"), 24);
  EXPECT_EQ(engine->metrics().Get(Counter::kGrammarTokens, "chosen"), 1);
}

// A draft that the grammar forbids is not verified.
TEST(GrammarIdentity, ForbiddenDraftsAreDropped) {
  const auto rows = [](bool constrained) {
    std::mt19937 random(3);
    EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160};
    options.step.budget = {.max_nodes = 12, .max_depth = 6, .top_k = 2};
    const auto engine = Small().MakeEngine(
        options,
        std::make_unique<OracleDrafter>(std::vector<std::vector<int32_t>>{}, kVocabulary, 0.0, 1));
    GenerateRequest request{.prompt = RandomPrompt(random, 9, kVocabulary)};
    request.sampling.max_tokens = 20;
    if (constrained) {
      request.sampling.grammar =
          std::make_shared<Matcher>(std::move(*RegexGrammar("x{200}")), &Vocabulary());
    }
    const GenerateResult result = RunBatch(engine.get(), {request})[0];
    return result.stats.rows;
  };
  EXPECT_GT(rows(false), 100);
  EXPECT_LT(rows(true), 30);  // random drafts are hardly ever an x
}

}  // namespace
}  // namespace talon
