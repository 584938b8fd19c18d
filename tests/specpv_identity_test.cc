// Exact partial verification against plain decoding on real text, with the bundled model and head:
// every prompt, every budget, greedy and seeded, token for token.
//
// By default the bundled prompts, which are short, under budgets small enough to leave most of them
// out, with int8 weights, which are fast. With TALON_PROMPTS=DIR all of DIR/books.jsonl and
// DIR/recall.jsonl under 512 to 4096 retrieved tokens; with TALON_MIN_CHARS=M and TALON_MAX_CHARS=N
// only those of M to N characters. That takes the better part of an hour; each line says what was
// compared.
//
// The prompt of a sequence is computed once and shared through the prefix cache.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "engine/engine.h"
#include "spec/drafters/heads/eagle_drafter.h"

namespace talon {
namespace {

const std::string kRoot = TALON_SOURCE_DIR;
constexpr DraftBudget kTree{.max_nodes = 8, .max_depth = 5, .top_k = 4};
constexpr int kNewTokens = 48;

std::string Setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}
bool Bundled() { return std::getenv("TALON_PROMPTS") == nullptr; }

class SpecPvIdentity : public testing::TestWithParam<const char*> {
 protected:
  SpecPvIdentity() : backend_(NewTestBackend(Bundled() ? 1 : 2)) {
    tokenizer_ = Tokenizer::Load(kRoot + "/models/tiny/tokenizer.json").value();
    const auto weights = Bundled() ? WeightFormat::kInt8 : WeightFormat::kAsStored;
    target_ = Decoder::Load(kRoot + "/models/tiny", backend_.get(),
                            {.weights = weights, .max_rows = 768, .max_output_rows = 256})
                  .value();
  }

  std::vector<std::pair<std::string, std::vector<int32_t>>> Prompts() const {
    const std::string dir = Setting("TALON_PROMPTS", kRoot + "/tests/data/prompts");
    const size_t least = std::stoul(Setting("TALON_MIN_CHARS", "0"));
    const size_t most = std::stoul(Setting("TALON_MAX_CHARS", "100000000"));
    std::istringstream lines(ReadFile(dir + "/" + GetParam()).value());
    std::vector<std::pair<std::string, std::vector<int32_t>>> prompts;
    for (std::string line; std::getline(lines, line);) {
      const Json json = ParseJson(line, GetParam()).value();
      const auto text = json.at("prompt").get<std::string>();
      if (text.size() < least || text.size() > most) continue;
      prompts.emplace_back(json.at("id").get<std::string>(),
                           tokenizer_->Encode(text, /*add_special_tokens=*/true).value());
    }
    return prompts;
  }

  std::unique_ptr<Engine> MakeEngine(int prompt_tokens, const SpecPvConfig& specpv) {
    EngineOptions options{
        .max_length = prompt_tokens + kNewTokens + 16, .max_sequences = 1, .prefix_cache = true};
    options.step.budget = kTree;
    options.step.specpv = specpv;
    Engine::Parts parts{.backend = backend_.get(), .target = target_.get()};
    parts.drafter =
        EagleDrafter::Load({.model_path = kRoot + "/models/tiny-eagle3",
                            .budget = kTree,
                            .window = {.window = 1024, .sink = 32},
                            .cache = {.max_length = options.max_length, .prefix_index = true},
                            .weights = WeightFormat::kInt8},
                           *target_, backend_.get(), &metrics_)
            .value();
    return Engine::Create(std::move(parts), options).value();
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Decoder> target_;
  Metrics metrics_;
};

GenerateRequest Request(const std::vector<int32_t>& prompt, float temperature) {
  GenerateRequest request;
  request.prompt = prompt;
  request.sampling.max_tokens = kNewTokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = 11;
  return request;
}

TEST_P(SpecPvIdentity, EveryPromptAndBudgetGivesPlainTokens) {
  SpecPvConfig config;
  config.enabled = true;
  config.partial_threshold = 0;
  if (Bundled()) config.window_blocks = 1;
  int compared = 0;
  int64_t partial = 0;
  for (const auto& [id, prompt] : Prompts()) {
    const auto engine = MakeEngine(static_cast<int>(prompt.size()), config);
    for (const float temperature : {0.0f, 0.8f}) {
      const std::vector<int> budgets = Bundled() ? std::vector<int>{temperature == 0 ? 32 : 128}
                                                 : std::vector<int>{512, 1024, 2048, 4096};
      std::vector<GenerateResult> exact;
      for (const int budget : budgets) {
        GenerateRequest request = Request(prompt, temperature);
        request.specpv.budget_tokens = budget;
        exact.push_back(engine->Generate(std::move(request)).value());
      }
      GenerateRequest request = Request(prompt, temperature);
      request.speculate = false;
      request.specpv.off = true;
      const GenerateResult plain = engine->Generate(std::move(request)).value();
      EXPECT_EQ(plain.stats.partial_passes, 0);
      EXPECT_EQ(plain.stats.drafted, 0);
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_EQ(plain.TokenIds(), exact[i].TokenIds())
            << id << ", budget " << budgets[i] << ", temperature " << temperature;
        ++compared;
        partial += exact[i].stats.partial_passes;
      }
    }
    std::printf("%s: %zu tokens of prompt, %d comparisons, %lld partial passes so far\n",
                id.c_str(), prompt.size(), compared, static_cast<long long>(partial));
    std::fflush(stdout);
  }
  EXPECT_EQ(metrics_.Total(Counter::kSpecFallback), 0);
  EXPECT_GT(compared, 0);
  EXPECT_GT(partial, compared);
}

INSTANTIATE_TEST_SUITE_P(Files, SpecPvIdentity, testing::Values("books.jsonl", "recall.jsonl"),
                         [](const auto& info) {
                           const std::string file = info.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace talon
