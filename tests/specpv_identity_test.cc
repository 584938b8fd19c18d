// Exact partial verification against plain decoding on real text, with the bundled model and head:
// every prompt, every budget, greedy and seeded, token for token.
//
// By default the bundled prompts, which are short, under budgets small enough to leave most of them
// out. With TALON_PROMPTS=DIR all of DIR/books.jsonl and DIR/recall.jsonl under 512 to 4096
// retrieved tokens; with TALON_MAX_CHARS=N only those of at most N characters. That takes hours at
// 30000 tokens; each line says what was compared.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "engine/engine.h"
#include "spec/drafters/eagle3_drafter.h"

namespace talon {
namespace {

const std::string kRoot = TALON_SOURCE_DIR;
constexpr DraftBudget kTree{.max_nodes = 8, .max_depth = 5, .top_k = 4};
constexpr int kNewTokens = 64;

std::string Setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}
bool Bundled() { return std::getenv("TALON_PROMPTS") == nullptr; }

class SpecPvIdentity : public testing::TestWithParam<const char*> {
 protected:
  SpecPvIdentity() : backend_(NewTestBackend(2)) {
    tokenizer_ = Tokenizer::Load(kRoot + "/models/tiny/tokenizer.json").value();
    target_ = Decoder::Load(kRoot + "/models/tiny", backend_.get(),
                            {.max_rows = 768, .max_output_rows = 256})
                  .value();
  }

  std::vector<std::pair<std::string, std::vector<int32_t>>> Prompts() const {
    const std::string dir = Setting("TALON_PROMPTS", kRoot + "/tests/data/prompts");
    const size_t limit = std::stoul(Setting("TALON_MAX_CHARS", "100000000"));
    std::istringstream lines(ReadFile(dir + "/" + GetParam()).value());
    std::vector<std::pair<std::string, std::vector<int32_t>>> prompts;
    for (std::string line; std::getline(lines, line);) {
      const Json json = ParseJson(line, GetParam()).value();
      const auto text = json.at("prompt").get<std::string>();
      if (text.size() > limit) continue;
      prompts.emplace_back(json.at("id").get<std::string>(),
                           tokenizer_->Encode(text, /*add_special_tokens=*/true).value());
    }
    return prompts;
  }

  GenerateResult Generate(const std::vector<int32_t>& prompt, float temperature,
                          const SpecPvConfig* specpv) {
    EngineOptions options{.max_length = static_cast<int>(prompt.size()) + kNewTokens + 16,
                          .max_sequences = 1};
    Engine::Parts parts{.backend = backend_.get(), .target = target_.get()};
    Metrics metrics;
    if (specpv != nullptr) {
      options.step.budget = kTree;
      options.step.specpv = *specpv;
      parts.drafter = Eagle3Drafter::Load({.model_path = kRoot + "/models/tiny-eagle3",
                                           .budget = kTree,
                                           .window = 1024,
                                           .sink = 32,
                                           .max_length = options.max_length,
                                           .weights = WeightFormat::kInt8},
                                          *target_, backend_.get(), &metrics)
                          .value();
    }
    const auto engine = Engine::Create(std::move(parts), options).value();
    GenerateRequest request;
    request.prompt = prompt;
    request.sampling.max_tokens = kNewTokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    return engine->Generate(std::move(request)).value();
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Decoder> target_;
};

TEST_P(SpecPvIdentity, EveryPromptAndBudgetGivesPlainTokens) {
  const std::vector<int> budgets =
      Bundled() ? std::vector<int>{32, 128} : std::vector<int>{512, 1024, 2048, 4096};
  int compared = 0;
  int64_t partial = 0;
  for (const auto& [id, prompt] : Prompts()) {
    for (const float temperature : {0.0f, 0.8f}) {
      const GenerateResult plain = Generate(prompt, temperature, nullptr);
      for (const int budget : budgets) {
        SpecPvConfig config;
        config.enabled = true;
        config.retrieval_blocks = budget / config.block_size;
        config.partial_threshold = 0;
        if (Bundled()) config.window_blocks = 1;
        const GenerateResult exact = Generate(prompt, temperature, &config);
        EXPECT_EQ(plain.TokenIds(), exact.TokenIds())
            << id << ", budget " << budget << ", temperature " << temperature;
        ++compared;
        partial += exact.stats.partial_passes;
      }
    }
    std::printf("%s: %zu tokens of prompt, %d comparisons, %lld partial passes so far\n",
                id.c_str(), prompt.size(), compared, static_cast<long long>(partial));
    std::fflush(stdout);
  }
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
