#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace talon {
namespace {

GenerateRequest TextRequest(const std::string& text, int max_tokens) {
  GenerateRequest request;
  request.prompt = Tiny().tokenizer->Encode(text, true).value();
  request.sampling.max_tokens = max_tokens;
  return request;
}

struct Formats {
  const char* name;
  WeightFormat weights;
  ActivationFormat activations = ActivationFormat::kAuto;
};

class WeightsTest : public testing::TestWithParam<Formats> {};

// The same prompt alone, beside 7 others, and prefilled in chunks of every size.
TEST_P(WeightsTest, BatchAndChunksDoNotChangeALogit) {
  TestModel model("models/tiny", GetParam().weights, 1100, GetParam().activations);
  std::mt19937 random(1);
  std::vector<GenerateRequest> requests(8);
  for (int i = 0; i < 8; ++i) {
    requests[i].prompt = RandomPrompt(random, 5 + 19 * i, 8192);
    requests[i].sampling.max_tokens = 8;
    requests[i].sampling.logprobs = 20;
  }
  std::vector<GenerateResult> alone;
  for (const int chunk : {512, 1, 7, 64}) {
    const auto engine = model.MakeEngine({.max_sequences = 1, .prefill_chunk = chunk});
    const GenerateResult result = RunBatch(engine.get(), {requests[7]})[0];
    if (alone.empty()) alone.push_back(result);
    ExpectSameBits(alone[0], result);
  }
  const auto engine = model.MakeEngine({.max_sequences = 8, .prefill_chunk = 100});
  ExpectSameBits(alone[0], RunBatch(engine.get(), requests)[7]);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, WeightsTest,
    testing::Values(Formats{"f32", WeightFormat::kF32}, Formats{"f16", WeightFormat::kF16},
                    Formats{"bf16", WeightFormat::kBF16}, Formats{"fp8", WeightFormat::kFp8},
                    Formats{"fp8_activations", WeightFormat::kFp8, ActivationFormat::kFp8},
                    Formats{"int8", WeightFormat::kInt8}, Formats{"int4", WeightFormat::kInt4}),
    [](const auto& info) { return info.param.name; });

TEST(Engine, StreamsTheTextItReturns) {
  const auto engine = Tiny().MakeEngine({.max_sequences = 1});
  GenerateRequest request = TextRequest("Once upon a time", 40);
  std::string streamed;
  size_t tokens = 0;
  request.on_update = [&](const RequestUpdate& update) {
    streamed += update.text;
    tokens += update.tokens.size();
  };
  const GenerateResult result = engine->Generate(std::move(request)).value();
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.tokens.size(), 40u);
  EXPECT_EQ(tokens, 40u);
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.text, Tiny().tokenizer->Decode(result.TokenIds(), true));
  EXPECT_EQ(result.stats.passes, 40);
}

TEST(Engine, StopStringCutsTheTextNotTheTokens) {
  const auto engine = Tiny().MakeEngine({.max_sequences = 1});
  const GenerateResult plain = engine->Generate(TextRequest("Once upon a time", 40)).value();
  const size_t comma = plain.text.find(',');
  ASSERT_NE(comma, std::string::npos);
  GenerateRequest request = TextRequest("Once upon a time", 40);
  request.stop = {","};
  const GenerateResult stopped = engine->Generate(std::move(request)).value();
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.text, plain.text.substr(0, comma));
  EXPECT_LT(stopped.tokens.size(), plain.tokens.size());
  EXPECT_EQ(stopped.tokens.back().token, plain.tokens[stopped.tokens.size() - 1].token);
}

TEST(Engine, StopIdsAndMinTokens) {
  const auto engine = Tiny().MakeEngine({.max_sequences = 1});
  const GenerateResult plain = engine->Generate(TextRequest("It was a dark night", 20)).value();
  GenerateRequest request = TextRequest("It was a dark night", 20);
  request.sampling.stop_token_ids = {plain.tokens[5].token};
  const GenerateResult stopped = engine->Generate(request).value();
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_LE(stopped.tokens.size(), 6u);
  request.sampling.min_tokens = 10;
  EXPECT_GE(engine->Generate(request).value().tokens.size(), 10u);
}

TEST(Engine, SeedIsReportedAndRepeatsTheText) {
  const auto engine = Tiny().MakeEngine({.max_sequences = 2});
  GenerateRequest request = TextRequest("The captain", 30);
  request.sampling.temperature = 1;
  const GenerateResult first = engine->Generate(request).value();
  request.sampling.seed = first.seed;
  EXPECT_EQ(engine->Generate(request).value().text, first.text);
}

TEST(Engine, ContextEndFinishesWithLength) {
  const auto engine = Tiny().MakeEngine({.max_length = 24, .max_sequences = 1});
  const GenerateResult result = engine->Generate(TextRequest("Once upon a time", 100)).value();
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.tokens.size() + result.stats.prompt_tokens, 24u);
}

TEST(Engine, BadRequestsAreRefusedWithTheNumbers) {
  const auto engine = Tiny().MakeEngine({.kv_tokens = 64, .max_length = 200, .max_sequences = 1});
  const auto message = [&](std::vector<int32_t> prompt, int max_tokens) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    return engine->Submit(std::move(request)).status().message();
  };
  EXPECT_EQ(message({}, 5), "prompt: no tokens");
  EXPECT_EQ(message({5, 8192}, 5), "prompt: token 8192 at 1, vocabulary 8192");
  EXPECT_EQ(message({5, -1}, 5), "prompt: token -1 at 1, vocabulary 8192");
  EXPECT_EQ(message(std::vector<int32_t>(200, 7), 5),
            "prompt: 200 tokens, the context holds 200 and one must be left");
  EXPECT_EQ(message({5}, 100), "kv: 101 tokens need 7 blocks, the pool has 4");
  EXPECT_NE(message({5}, -3), "");
  EXPECT_FALSE(engine->HasWork());
}

TEST(Engine, CancelFreesEverything) {
  const auto engine = Tiny().MakeEngine({.max_sequences = 2});
  const RequestId running = engine->Submit(TextRequest("Once upon a time", 100)).value();
  const RequestId other = engine->Submit(TextRequest("The sea", 10)).value();
  const RequestId waiting = engine->Submit(TextRequest("A house", 10)).value();
  for (int i = 0; i < 5; ++i) engine->RunStep();
  engine->Cancel(running);
  engine->Cancel(waiting);
  engine->Cancel(12345);
  EXPECT_EQ(engine->Take(running).value().finish, FinishReason::kCancelled);
  EXPECT_EQ(engine->Take(waiting).value().tokens.size(), 0u);
  while (engine->HasWork()) engine->RunStep();
  EXPECT_EQ(engine->Take(other).value().tokens.size(), 10u);
  EXPECT_EQ(engine->kv().pool().used_blocks(), 0);
}

TEST(Engine, PreemptionLosesNothing) {
  std::vector<GenerateRequest> requests;
  for (const char* text : {"Once upon a time", "The captain looked", "In the morning the", "A"}) {
    requests.push_back(TextRequest(text, 60));
    requests.back().sampling.logprobs = 3;
  }
  const auto roomy = Tiny().MakeEngine({.max_sequences = 4});
  const auto tight = Tiny().MakeEngine({.kv_tokens = 128, .max_sequences = 4});
  const auto expected = RunBatch(roomy.get(), requests);
  const auto got = RunBatch(tight.get(), requests);
  for (size_t i = 0; i < requests.size(); ++i) ExpectSameBits(expected[i], got[i]);
}

}  // namespace
}  // namespace talon
