// An engine on several ranks gives the text and log-probs of an engine on one, in random cases;
// TALON_CASES sets how many of them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/ranks/random_cases.h"
#include "engine/test_engine.h"
#include "model/ranks/test_ranks.h"

namespace talon {
namespace {

class RanksIdentityTest : public testing::TestWithParam<RanksVariant> {};

TEST_P(RanksIdentityTest, TextAndLogProbsAreThoseOfOneRank) {
  RandomCases cases(GetParam());
  TestRanks one(cases.model_dir(), 1, cases.load_options());
  TestRanks two(cases.model_dir(), 2, cases.load_options());
  TestRanks four(cases.model_dir(), 4, cases.load_options());
  const auto target = [](TestRanks& ranks) { return RanksTarget{ranks.backend(), ranks.leader()}; };
  const std::array several = {target(one), target(two), target(four)};
  const int count = NumRanksCases(18);
  for (int i = 0; i < count && !HasFailure(); ++i) cases.Check(i, target(one), several);
  fmt::print("{}", cases.Summary());
  EXPECT_GT(cases.accepted(), count);  // drafts and partial views did matter
  EXPECT_GT(cases.partial_passes(), count);
  for (TestRanks* ranks : {&two, &four}) {
    for (const Status& status : ranks->Stop()) EXPECT_TRUE(status.ok()) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, RanksIdentityTest, testing::ValuesIn(RanksVariants()),
                         [](const auto& info) { return info.param.Name(); });

// A follower that is gone: requests end with an error that names it, and the engine stops.
TEST(RanksFaultTest, ALostRankEndsRequestsAndTheEngine) {
  const TempDirectory dir;
  WriteModel(dir.path(), RanksModelConfig("llama"), DType::kF32, 28);
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
