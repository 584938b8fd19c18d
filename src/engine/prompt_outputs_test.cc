// What requests want of their prompts, and what a single request may choose for itself.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/test_engine.h"
#include "model/single_sequence.h"
#include "spec/drafters/merged_drafter.h"

namespace talon {
namespace {

constexpr int kOutputsMaxLength = 512;

const std::string kStory =
    "The captain looked at the sea and said nothing for a while. The crew waited. Nobody had seen "
    "such weather before, and the oldest of them only shook his head and went below.";

EngineOptions OutputsOptions(int prefill_chunk = 512, bool prefix_cache = false) {
  return {.max_length = kOutputsMaxLength,
          .max_sequences = 4,
          .prefill_chunk = prefill_chunk,
          .kv_audit = true,
          .prefix_cache = prefix_cache};
}

GenerateRequest Greedy(std::vector<int32_t> prompt, int max_tokens) {
  GenerateRequest request{.prompt = std::move(prompt)};
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

GenerateRequest Scored(std::vector<int32_t> prompt, int max_tokens = 0) {
  GenerateRequest request = Greedy(std::move(prompt), max_tokens);
  request.prompt_outputs.logprobs = 3;
  return request;
}

GenerateRequest Pooled(std::vector<int32_t> prompt, Pooling pooling) {
  GenerateRequest request = Greedy(std::move(prompt), 0);
  request.prompt_outputs.pooling = pooling;
  return request;
}

GenerateResult RunAlone(Engine* engine, GenerateRequest request) {
  auto result = engine->Generate(std::move(request));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

void ExpectSameScores(const std::vector<EmittedToken>& a, const std::vector<EmittedToken>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token) << i;
    EXPECT_TRUE(a[i].log_prob == b[i].log_prob || (i == 0 && std::isnan(b[i].log_prob))) << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size()) << i;
    for (size_t j = 0; j < a[i].top.size(); ++j) {
      EXPECT_EQ(a[i].top[j].token, b[i].top[j].token);
      EXPECT_EQ(a[i].top[j].log_prob, b[i].top[j].log_prob);
    }
  }
}

// A plain decode's log-probs of the tokens it emits are those of a prompt that contains them.
TEST(PromptOutputs, ScoresEqualThoseOfDecoding) {
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  GenerateRequest decode = Greedy(Encode(kStory), 40);
  decode.sampling.logprobs = 3;
  const GenerateResult decoded = RunAlone(engine.get(), decode);
  std::vector<int32_t> all = decode.prompt;
  for (const int32_t token : decoded.TokenIds()) all.push_back(token);
  const GenerateResult scored = RunAlone(engine.get(), Scored(all));
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.finish, FinishReason::kLength);
  ASSERT_EQ(scored.prompt.size(), all.size());
  EXPECT_TRUE(std::isnan(scored.prompt[0].log_prob));
  ExpectSameScores({scored.prompt.end() - 40, scored.prompt.end()}, decoded.tokens);
}

TEST(PromptOutputs, ScoresDoNotDependOnChunksCacheOrCompany) {
  const std::vector<int32_t> prompt = Encode(kStory);
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  const GenerateResult alone = RunAlone(engine.get(), Scored(prompt));

  const auto chunked = Tiny().MakeEngine(OutputsOptions(/*prefill_chunk=*/5));
  ExpectSameScores(alone.prompt, RunAlone(chunked.get(), Scored(prompt)).prompt);

  const auto cached = Tiny().MakeEngine(OutputsOptions(512, /*prefix_cache=*/true));
  RunAlone(cached.get(), Greedy(prompt, 4));
  const GenerateResult known = RunAlone(cached.get(), Greedy(prompt, 4));
  const GenerateResult after = RunAlone(cached.get(), Scored(prompt, 4));
  EXPECT_GT(known.stats.cached_tokens, 0);
  EXPECT_EQ(after.stats.cached_tokens, 0);
  EXPECT_EQ(after.TokenIds(), known.TokenIds());
  ExpectSameScores(alone.prompt, after.prompt);
}

// The pool gets too small while one prompt token is computed per step of another request.
TEST(PromptOutputs, PreemptionInTheMiddleOfAPrompt) {
  const std::vector<int32_t> prompt = Encode(kStory + " " + kStory);
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  const GenerateResult alone = RunAlone(engine.get(), Scored(prompt, 20));
  const GenerateResult vector = RunAlone(engine.get(), Pooled(prompt, Pooling::kMean));
  const int blocks = static_cast<int>(prompt.size()) / 16 + 4;
  for (const bool pooled : {false, true}) {
    EngineOptions small = OutputsOptions(/*prefill_chunk=*/1);
    small.kv_tokens = 16 * blocks;
    const auto crowded = Tiny().MakeEngine(small);
    const auto results =
        RunBatch(crowded.get(), {Greedy({5}, 16 * (blocks - 1)),
                                 pooled ? Pooled(prompt, Pooling::kMean) : Scored(prompt, 20)});
    EXPECT_GT(crowded->metrics().Total(Counter::kRequestPreemptions), 0);
    EXPECT_EQ(results[1].embedding, pooled ? vector.embedding : std::vector<float>());
    if (pooled) continue;
    ExpectSameScores(alone.prompt, results[1].prompt);
    EXPECT_EQ(results[1].TokenIds(), alone.TokenIds());
  }
}

TEST(PromptOutputs, OneUpdateCarriesTheScores) {
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  for (const int max_tokens : {0, 5}) {
    GenerateRequest request = Scored(Encode(kStory), max_tokens);
    std::vector<RequestUpdate> updates;
    request.on_update = [&updates](const RequestUpdate& update) { updates.push_back(update); };
    const GenerateResult result = RunAlone(engine.get(), request);
    ASSERT_FALSE(updates.empty());
    ExpectSameScores(updates[0].prompt, result.prompt);
    for (size_t i = 1; i < updates.size(); ++i) EXPECT_TRUE(updates[i].prompt.empty());
  }
}

TEST(PromptOutputs, ShortestAndLongestPrompt) {
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  const GenerateResult one = RunAlone(engine.get(), Scored({5}));
  ASSERT_EQ(one.prompt.size(), 1u);
  EXPECT_EQ(one.finish, FinishReason::kLength);
  const std::vector<int32_t> longest(kOutputsMaxLength, 7);
  EXPECT_EQ(RunAlone(engine.get(), Scored(longest)).prompt.size(), longest.size());
  EXPECT_FALSE(engine->Generate(Scored(longest, 1)).ok());
  EXPECT_EQ(RunAlone(engine.get(), Greedy(longest, 0)).finish, FinishReason::kLength);
}

// The vector of the hidden states that a pass over the whole prompt gives.
std::vector<double> ReferenceVector(const std::vector<int32_t>& prompt, bool mean) {
  auto sequence =
      SingleSequence::Create(Tiny().target.get(), Tiny().backend.get(),
                             {.max_tokens = kOutputsMaxLength, .kv_dtype = DType::kBF16});
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  const auto rows = sequence->Append(prompt);
  EXPECT_TRUE(rows.ok());
  const size_t width = rows->hidden.size() / prompt.size();
  std::vector<double> sum(width);
  for (size_t row = mean ? 0 : prompt.size() - 1; row < prompt.size(); ++row) {
    for (size_t i = 0; i < width; ++i) sum[i] += rows->hidden[row * width + i];
  }
  double square = 0;
  for (const double value : sum) square += value * value;
  for (double& value : sum) value /= std::sqrt(square);
  return sum;
}

TEST(PromptOutputs, VectorsAreThoseOfTheHiddenStates) {
  const std::vector<int32_t> prompt = Encode(kStory);
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  const auto chunked =
      Tiny().MakeEngine(OutputsOptions(/*prefill_chunk=*/7, /*prefix_cache=*/true));
  RunAlone(chunked.get(), Greedy(prompt, 4));
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const GenerateResult result = RunAlone(engine.get(), Pooled(prompt, pooling));
    const std::vector<double> expected = ReferenceVector(prompt, pooling == Pooling::kMean);
    ASSERT_EQ(result.embedding.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(result.embedding[i], expected[i], 1e-5) << i;
    }
    const GenerateResult again = RunAlone(chunked.get(), Pooled(prompt, pooling));
    EXPECT_EQ(again.embedding, result.embedding);
    EXPECT_EQ(again.stats.cached_tokens > 0, pooling == Pooling::kLast);  // one row is read
  }
  EXPECT_EQ(RunAlone(engine.get(), Pooled({5}, Pooling::kMean)).embedding,
            RunAlone(engine.get(), Pooled({5}, Pooling::kLast)).embedding);
  GenerateRequest both = Pooled(prompt, Pooling::kLast);
  both.sampling.max_tokens = 3;
  EXPECT_FALSE(engine->Generate(both).ok());
}

TEST(RequestText, SpecialTokensAndStopStrings) {
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  const int32_t special = Tiny().target->config().eos_token_ids[0];
  GenerateRequest request = Greedy(Encode(kStory), 3);
  request.sampling.logit_bias = {{special, 100.0f}};
  EXPECT_EQ(RunAlone(engine.get(), request).text, "");
  request.text.skip_special_tokens = false;
  const std::string name = Tiny().tokenizer->Decode({{special}}, false);
  ASSERT_NE(name, "");
  EXPECT_EQ(RunAlone(engine.get(), request).text, name + name + name);

  GenerateRequest plain = Greedy(Encode(kStory), 30);
  const std::string whole = RunAlone(engine.get(), plain).text;
  plain.stop = {whole.substr(whole.size() / 2, 3)};
  const std::string before = RunAlone(engine.get(), plain).text;
  plain.text.include_stop = true;
  EXPECT_EQ(RunAlone(engine.get(), plain).text, before + plain.stop[0]);
}

// Drafts nothing and counts who asks.
class CountingDrafter : public Drafter {
 public:
  CountingDrafter(std::string_view name, int* asked) : name_(name), asked_(asked) {}
  std::string_view name() const override { return name_; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree>) override {
    *asked_ += static_cast<int>(requests.size());
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}

 private:
  std::string_view name_;
  int* asked_;
};

TEST(RequestDrafter, OnlyTheNamedOnesAreAsked) {
  int ngram = 0, suffix = 0;
  const DraftBudget budget{.max_nodes = 4, .max_depth = 3};
  std::vector<MergedDrafter::Source> sources(2);
  sources[0] = {std::make_unique<CountingDrafter>("NGRAM", &ngram), budget};
  sources[1] = {std::make_unique<CountingDrafter>("SUFFIX", &suffix), budget};
  EngineOptions options = OutputsOptions();
  options.step.budget = budget;
  const auto engine =
      Tiny().MakeEngine(options, std::make_unique<MergedDrafter>(std::move(sources)));
  GenerateRequest request = Greedy(Encode(kStory), 8);
  request.drafter = "suffix";
  RunAlone(engine.get(), request);
  EXPECT_EQ(ngram, 0);
  EXPECT_GT(suffix, 0);
  request.drafter = "none";
  suffix = 0;
  RunAlone(engine.get(), request);
  EXPECT_EQ(ngram + suffix, 0);
  request.drafter = "NGRAM,SUFFIX";
  RunAlone(engine.get(), request);
  EXPECT_GT(ngram, 0);
  EXPECT_GT(suffix, 0);
  request.drafter = "EAGLE3";
  const auto refused = engine->Generate(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("NGRAM, SUFFIX"), std::string::npos);
}

TEST(RequestSpecPv, IsRefusedWhereTheEngineHasNone) {
  const auto engine = Tiny().MakeEngine(OutputsOptions());
  GenerateRequest request = Greedy(Encode(kStory), 4);
  request.specpv.off = true;
  EXPECT_TRUE(engine->Check(request).ok());
  request.specpv = {.mode = SpecPvMode::kFast};
  EXPECT_FALSE(engine->Check(request).ok());
  request.specpv = {.budget_tokens = 64};
  EXPECT_FALSE(engine->Check(request).ok());
}

}  // namespace
}  // namespace talon
