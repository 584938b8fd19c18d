// An engine on several ranks gives the text and log-probs of an engine on one: random batches,
// trees and sampling settings.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/test_engine.h"
#include "model/ranks/test_ranks.h"
#include "model/test_model.h"

namespace talon {
namespace {

Json ConfigOf(const std::string& family) {
  Json config = family == "llama" || family == "qwen3" ? SmallConfig() : ExpertsConfig(family);
  if (family == "qwen3") config["architectures"] = {"Qwen3ForCausalLM"};
  config.update({{"vocab_size", kVocabulary},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 16},
                 {"hidden_size", 64}});
  if (!family.starts_with("gpt_oss")) config["intermediate_size"] = 160;
  return config;
}

SamplingParams RandomSampling(std::mt19937& random) {
  SamplingParams params;
  params.max_tokens = 1 + static_cast<int>(random() % 24);
  params.seed = random();
  if (random() % 2 == 0) params.temperature = 0.2f + static_cast<float>(random() % 20) / 10;
  if (random() % 3 == 0) params.top_k = 1 + static_cast<int>(random() % 50);
  if (random() % 3 == 0) params.top_p = 0.3f + static_cast<float>(random() % 7) / 10;
  if (random() % 3 == 0) params.repetition_penalty = 1.0f + static_cast<float>(random() % 10) / 10;
  params.logprobs = static_cast<int>(random() % 3);
  return params;
}

std::vector<GenerateRequest> RandomRequests(std::mt19937& random) {
  std::vector<GenerateRequest> requests(1 + random() % 6);
  for (GenerateRequest& request : requests) {
    request.prompt = RandomPrompt(random, 1 + static_cast<int>(random() % 50), kVocabulary);
    request.sampling = RandomSampling(random);
  }
  // Some begin alike, so that the prefix cache has work.
  for (size_t i = 1; i < requests.size() && random() % 2 == 0; ++i) {
    requests[i].prompt.insert(requests[i].prompt.begin(), requests[0].prompt.begin(),
                              requests[0].prompt.end());
  }
  return requests;
}

std::vector<std::vector<int32_t>> AnswersOf(const std::vector<GenerateRequest>& requests,
                                            const std::vector<GenerateResult>& results) {
  std::vector<std::vector<int32_t>> answers;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers.push_back(requests[i].prompt);
    const auto ids = results[i].TokenIds();
    answers.back().insert(answers.back().end(), ids.begin(), ids.end());
  }
  return answers;
}

void ExpectSame(const GenerateResult& one, const GenerateResult& several, const std::string& what) {
  ASSERT_EQ(one.TokenIds(), several.TokenIds()) << what;
  ASSERT_EQ(one.finish, several.finish) << what;
  for (size_t i = 0; i < one.tokens.size(); ++i) {
    ASSERT_EQ(one.tokens[i].log_prob, several.tokens[i].log_prob) << what;
  }
}

struct Variant {
  const char* family;
  WeightFormat weights = WeightFormat::kAsStored;
  DType kv_dtype = DType::kBF16;
};

class RanksIdentityTest : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Engine> MakeEngine(TestRanks& ranks, const EngineOptions& options,
                                     std::unique_ptr<Drafter> drafter = nullptr) {
    auto engine = Engine::Create({.backend = ranks.backend(),
                                  .target = ranks.leader(),
                                  .tokenizer = nullptr,
                                  .drafter = std::move(drafter)},
                                 options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
};

TEST_P(RanksIdentityTest, TextAndLogProbsAreThoseOfOneRank) {
  const Variant& variant = GetParam();
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf(variant.family), DType::kBF16, 27);
  const LoadOptions load{.weights = variant.weights, .max_rows = 600, .max_output_rows = 500};
  TestRanks one(dir.path(), 1, load);
  TestRanks two(dir.path(), 2, load);
  TestRanks four(dir.path(), 4, load);
  std::mt19937 random(31);
  int64_t accepted = 0;
  const int rounds = TestRounds(12);
  for (int round = 0; round < rounds; ++round) {
    const auto requests = RandomRequests(random);
    EngineOptions options{.kv_dtype = variant.kv_dtype,
                          .block_size = round % 2 == 0 ? 16 : 8,
                          .max_length = 160,
                          .max_sequences = 1 + static_cast<int>(random() % 6),
                          .prefill_chunk = 1 + static_cast<int>(random() % 50)};
    const auto plain = RunBatch(MakeEngine(one, options).get(), requests);
    options.step.budget = {.max_nodes = 1 + static_cast<int>(random() % 64),
                           .max_depth = 1 + static_cast<int>(random() % 20)};
    options.step.nwor = round % 3 != 0;
    for (TestRanks* ranks : {&two, &four}) {
      const auto engine = MakeEngine(
          *ranks, options,
          std::make_unique<OracleDrafter>(AnswersOf(requests, plain), kVocabulary, 0.7, round));
      const auto spread = RunBatch(engine.get(), requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        ExpectSame(plain[i], spread[i],
                   fmt::format("round {}, {} ranks", round, ranks->leader()->shard().size));
        accepted += spread[i].stats.accepted;
      }
    }
  }
  EXPECT_GT(accepted, 5 * rounds);  // the drafts did matter
  for (TestRanks* ranks : {&two, &four}) {
    for (const Status& status : ranks->Stop()) EXPECT_TRUE(status.ok()) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, RanksIdentityTest,
    testing::Values(Variant{.family = "llama"},
                    Variant{.family = "llama", .weights = WeightFormat::kInt8},
                    Variant{.family = "qwen3", .weights = WeightFormat::kInt4},
                    Variant{.family = "qwen3", .kv_dtype = DType::kF32},
                    Variant{.family = "gpt_oss", .weights = WeightFormat::kInt8},
                    Variant{.family = "gpt_oss_mxfp4"}, Variant{.family = "qwen3_moe"}),
    [](const auto& info) {
      return fmt::format("{}_{}_{}", info.param.family, WeightFormatName(info.param.weights),
                         DTypeName(info.param.kv_dtype));
    });

// A follower that is gone: requests end with an error that names it, and the engine stops.
TEST(RanksFaultTest, ALostRankEndsRequestsAndTheEngine) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kF32, 28);
  const auto ranks = LocalRanks::Create(2);
  ranks[0]->SetDeadline(0.05);
  const auto backend = NewCpuBackend(1, false);
  auto decoder = Decoder::Load(dir.path(), backend.get(),
                               {.max_rows = 100, .max_output_rows = 64, .ranks = ranks[0].get()});
  ASSERT_TRUE(decoder.ok());
  auto engine = Engine::Create({.backend = backend.get(), .target = decoder->get()},
                               {.max_length = 100, .prefill_chunk = 32});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  const auto results = RunBatch(engine->get(), {request});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].finish, FinishReason::kError);
  EXPECT_FALSE((*engine)->health().ok());
  EXPECT_NE(std::string((*engine)->health().message()).find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace talon
