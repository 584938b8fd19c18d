// The real drafters inside the engine: same text as plain decoding, and drafts that are accepted.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "engine/test_engine.h"
#include "spec/drafters/registry.h"
#include "spec/drafters/standalone_drafter.h"

namespace talon {
namespace {

struct Method {
  const char* name;
  DraftBudget budget;
  std::string mode = "BFS";
};

class DraftersTest : public testing::TestWithParam<Method> {
 protected:
  static std::unique_ptr<Drafter> Make(const Method& method, Metrics* metrics) {
    const bool standalone = std::string_view(method.name) == "STANDALONE";
    DrafterOptions options{
        .draft_model_path = std::string(TALON_SOURCE_DIR) +
                            (standalone ? "/models/tiny-draft" : "/models/tiny-eagle3"),
        .budget = method.budget,
        .ngram_mode = method.mode};
    auto drafter = MakeDrafter(DrafterList::Parse(method.name).value(), options,
                               {.backend = Tiny().backend.get(),
                                .decoder = Tiny().target.get(),
                                .metrics = metrics,
                                .vocab_size = 8192,
                                .cache = {.max_length = 512, .max_sequences = 8}});
    EXPECT_TRUE(drafter.ok()) << drafter.status().message();
    return std::move(drafter).value();
  }
};

std::vector<GenerateRequest> MixedRequests() {
  const std::vector<std::string> texts = {
      "---\ntitle: Array.prototype.map()\nslug: "
      "Web/JavaScript/Reference/Global_Objects/Array/map\n",
      "Once upon a time there was a", "The captain looked at the sea. The captain looked at the",
      "a"};
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < 8; ++i) {
    GenerateRequest request;
    request.prompt = Tiny().tokenizer->Encode(texts[i % texts.size()], true).value();
    request.sampling.max_tokens = 60;
    request.sampling.seed = i;
    if (i >= 4) {
      request.sampling.temperature = 0.7f;
      request.sampling.top_p = 0.9f;
      request.sampling.repetition_penalty = 1.1f;
    }
    if (i == 3) request.stop = {"the"};
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(DraftersTest, GivesPlainTokens) {
  const std::vector<GenerateRequest> requests = MixedRequests();
  EngineOptions options{.max_sequences = 5, .prefill_chunk = 16};
  static const auto plain = RunBatch(Tiny().MakeEngine(options).get(), requests);
  options.step.budget = GetParam().budget;
  Metrics metrics;
  const auto engine = Tiny().MakeEngine(options, Make(GetParam(), &metrics));
  const auto spec = RunBatch(engine.get(), requests);
  int64_t accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(plain[i].TokenIds(), spec[i].TokenIds()) << "request " << i;
    EXPECT_EQ(plain[i].text, spec[i].text);
    accepted += spec[i].stats.accepted;
  }
  EXPECT_GT(accepted, 10);
  EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, DraftersTest,
    testing::Values(Method{"EAGLE3", {.max_nodes = 6, .max_depth = 5, .top_k = 1}},
                    Method{"EAGLE3", {.max_nodes = 24, .max_depth = 6, .top_k = 4}},
                    Method{"EAGLE3,SUFFIX", {.max_nodes = 24, .max_depth = 23, .top_k = 4}},
                    Method{"NGRAM,EAGLE3,SUFFIX", {.max_nodes = 16, .max_depth = 17, .top_k = 4}},
                    Method{"NGRAM", {.max_nodes = 12, .max_depth = 17}},
                    Method{"NGRAM", {.max_nodes = 32, .max_depth = 17}, "PROB"},
                    Method{"SUFFIX", {.max_nodes = 24, .max_depth = 23}},
                    Method{"STANDALONE", {.max_nodes = 4, .max_depth = 3, .top_k = 1}},
                    Method{"STANDALONE", {.max_nodes = 16, .max_depth = 4, .top_k = 3}}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), ',', '_');
      return name + std::to_string(info.index);
    });

TEST(DrafterList, NamesAliasesAndRefusals) {
  EXPECT_EQ(DrafterList::Parse("ngram")->Name(), "NGRAM");
  EXPECT_EQ(DrafterList::Parse("Prompt_Lookup")->Name(), "NGRAM");
  EXPECT_EQ(DrafterList::Parse("draft_model")->Name(), "STANDALONE");
  EXPECT_EQ(DrafterList::Parse("Eagle3,lookup")->Name(), "EAGLE3,NGRAM");
  EXPECT_EQ(DrafterList::Parse("eagle3+suffix")->Name(), "EAGLE3,SUFFIX");
  EXPECT_EQ(DrafterList::Parse("merged")->Name(), "EAGLE3,SUFFIX");
  EXPECT_NE(DrafterList::Parse("NGRAM,lookup").status().message().find("twice"), std::string::npos);
  EXPECT_FALSE(DrafterList::Parse("NGRAM,").ok());
  EXPECT_FALSE(DrafterList::Parse("NGRAM,NONE").ok());
  EXPECT_EQ(DrafterList::Parse("eagle2")->Name(), "EAGLE");
  EXPECT_EQ(DrafterList::Parse("dflash,suffix")->Name(), "DFLASH,SUFFIX");
  EXPECT_NE(DrafterList::Parse("NEXTN").status().message().find("multi-token prediction layers"),
            std::string::npos);
  EXPECT_NE(DrafterList::Parse("foo").status().message().find("known: DFLASH"), std::string::npos);
}

TEST(Standalone, AnotherVocabularyIsRefused) {
  const auto loaded = StandaloneDrafter::Load(
      {.model_path = std::string(TALON_SOURCE_DIR) + "/tests/data/goldens/llama3",
       .budget = {.max_nodes = 4, .max_depth = 3},
       .vocab_size = 8192,
       .cache = {.max_length = 512}},
      Tiny().backend.get(), nullptr);
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("vocabulary of 512, the target of 8192"),
            std::string::npos);
  EXPECT_FALSE(StandaloneDrafter::Load({.vocab_size = 8192}, Tiny().backend.get(), nullptr).ok());
}

// Drawn drafts and rejection: more are accepted than by matching, where q is the target's own p
// all.
TEST(Standalone, SampledChainsAndRejection) {
  const auto accepted = [](bool rejection) {
    Metrics metrics;
    auto drafter =
        StandaloneDrafter::Load({.model_path = std::string(TALON_SOURCE_DIR) + "/models/tiny",
                                 .budget = {.max_nodes = 4, .max_depth = 3},
                                 .sample = true,
                                 .vocab_size = 8192,
                                 .cache = {.max_length = 512},
                                 .weights = WeightFormat::kInt8},
                                Tiny().backend.get(), &metrics);
    EngineOptions options{.max_sequences = 1};
    options.step.budget = {.max_nodes = 4, .max_depth = 3};
    options.step.accept = rejection ? AcceptMode::kRejection : AcceptMode::kMatch;
    const auto engine = Tiny().MakeEngine(options, std::move(drafter).value());
    GenerateRequest request;
    request.prompt = Tiny().tokenizer->Encode("Once upon a time", true).value();
    request.sampling = {.temperature = 1, .top_k = 64, .max_tokens = 120, .seed = 5};
    const GenerateResult result = engine->Generate(std::move(request)).value();
    EXPECT_EQ(engine->metrics().Total(Counter::kSpecFallback), 0);
    return static_cast<double>(result.stats.accepted) / static_cast<double>(result.stats.drafted);
  };
  EXPECT_GT(accepted(true), 0.95);
  EXPECT_LT(accepted(false), 0.7);
}

// The target as its own drafter: every draft is accepted, so the draft state follows exactly.
TEST(Standalone, TheTargetItselfIsAlwaysAccepted) {
  Metrics metrics;
  auto drafter =
      StandaloneDrafter::Load({.model_path = std::string(TALON_SOURCE_DIR) + "/models/tiny",
                               .budget = {.max_nodes = 4, .max_depth = 3},
                               .vocab_size = 8192,
                               .cache = {.max_length = 512},
                               .weights = WeightFormat::kInt8},
                              Tiny().backend.get(), &metrics);
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  EngineOptions options{.max_sequences = 1};
  options.step.budget = {.max_nodes = 4, .max_depth = 3};
  const auto engine = Tiny().MakeEngine(options, std::move(drafter).value());
  GenerateRequest request;
  request.prompt = Tiny().tokenizer->Encode("Once upon a time", true).value();
  request.sampling.max_tokens = 80;
  const GenerateResult result = engine->Generate(std::move(request)).value();
  EXPECT_EQ(result.stats.accepted, result.stats.drafted);
  EXPECT_EQ(result.stats.passes, 20);
}

}  // namespace
}  // namespace talon
