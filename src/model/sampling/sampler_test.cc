#include "model/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "grammar/gbnf.h"
#include "model/sampling/test_logits.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

Tokens RandomTokens(int count, int vocab, uint32_t seed) {
  std::mt19937 generator(seed);
  Tokens tokens(count);
  for (int32_t& token : tokens) token = std::uniform_int_distribution<>(0, vocab - 1)(generator);
  return tokens;
}

// Steps 1 to 3 as the specification reads, over the whole vocabulary.
std::vector<float> ReferenceProcess(std::vector<float> logits, const SamplingParams& params,
                                    const Tokens& eos, const Tokens& prompt, const Tokens& output) {
  Tokens all = prompt;
  all.insert(all.end(), output.begin(), output.end());
  for (size_t token = 0; token < logits.size(); ++token) {
    float& logit = logits[token];
    const auto count = std::count(output.begin(), output.end(), static_cast<int32_t>(token));
    if (std::find(all.begin(), all.end(), static_cast<int32_t>(token)) != all.end()) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    logit -= params.frequency_penalty * static_cast<float>(count) +
             params.presence_penalty * static_cast<float>(count > 0);
  }
  for (const auto& [token, bias] : params.logit_bias) logits[token] += bias;
  if (output.size() < static_cast<size_t>(params.min_tokens)) {
    for (const int32_t token : eos) logits[token] = -kInfinity;
    for (const int32_t token : params.stop_token_ids) logits[token] = -kInfinity;
  }
  for (const Tokens& word : params.bad_words) {
    const size_t head = word.size() - 1;
    if (head <= all.size() && std::equal(word.begin(), word.end() - 1, all.end() - head)) {
      logits[word.back()] = -kInfinity;
    }
  }
  return logits;
}

// A sampler with the tokens it chooses after.
struct OwnedSampler {
  OwnedSampler(SamplingParams params, Tokens eos_ids, Tokens prompt)
      : sampler(std::move(params), std::move(eos_ids), prompt), tokens(std::move(prompt)) {}

  Choice Choose(std::span<float> logits, std::span<const int32_t> path) const {
    return sampler.At(tokens).Choose(logits, path);
  }
  bool Distribution(std::span<float> logits, std::span<const int32_t> path,
                    std::vector<float>* probs) const {
    return sampler.At(tokens).Distribution(logits, path, probs);
  }
  RandomKey Key(size_t path_length, RandomStream stream) const {
    return sampler.At(tokens).Key(path_length, stream);
  }
  bool IsPlainGreedy() const { return sampler.At(tokens).IsPlainGreedy(); }
  void Append(std::span<const int32_t> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  void Observe(std::span<const int32_t> more) {
    Append(more);
    sampler.Observe(more);
  }

  Sampler sampler;
  Tokens tokens;
};

// The row after step 3, as Choose() leaves it.
std::vector<float> Processed(const OwnedSampler& sampler, std::vector<float> logits,
                             const Tokens& path) {
  sampler.Choose(logits, path);
  return logits;
}

std::vector<SamplingParams> EachProcessorAndAll() {
  const SamplingParams repetition{.repetition_penalty = 1.3f};
  const SamplingParams frequency{.frequency_penalty = 0.7f};
  const SamplingParams presence{.presence_penalty = -0.4f};
  const SamplingParams bias{.logit_bias = {{3, 2.5f}, {9, -100.0f}}};
  const SamplingParams min_tokens{.stop_token_ids = {5, 6}, .min_tokens = 12};
  const SamplingParams bad_words{.bad_words = {{4}, {7, 8}, {1, 2, 3}, {0, 1}, {1, 1, 1}}};
  SamplingParams all = bias;
  all.repetition_penalty = 0.8f;
  all.frequency_penalty = -0.2f;
  all.presence_penalty = 0.9f;
  all.stop_token_ids = {5, 6};
  all.min_tokens = 12;
  all.bad_words = bad_words.bad_words;
  return {SamplingParams{}, repetition, frequency, presence, bias, min_tokens, bad_words, all};
}

TEST(Sampler, KnownDrawOfSeed42Position100) {
  const Tokens prompt(100, 1);
  const OwnedSampler sampler({.temperature = 1, .seed = 42}, {}, prompt);
  EXPECT_EQ(UniformDraw(sampler.Key(0, RandomStream::kTarget)), 0.5107133354460417);
  // 1000 equal tokens: the running sum first exceeds 510.71.. at the 511th.
  std::vector<float> logits(1000, 0.25f);
  EXPECT_EQ(sampler.Choose(logits, {}).token, 510);

  const OwnedSampler shorter({.temperature = 1, .seed = 42}, {}, Tokens(97, 1));
  EXPECT_EQ(shorter.Choose(logits, Tokens{1, 2, 3}).token, 510) << "path counts as position";
}

TEST(Sampler, EachProcessorMatchesReference) {
  constexpr int kVocab = 11;
  const Tokens eos = {10};
  for (const SamplingParams& params : EachProcessorAndAll()) {
    ASSERT_TRUE(params.Validate(kVocab).ok()) << params.Validate(kVocab).message();
    for (uint32_t seed = 0; seed < 300; ++seed) {
      const Tokens prompt = RandomTokens(seed % 9 + 1, kVocab, seed);
      const Tokens output = RandomTokens(seed % 14, kVocab, seed + 1000);
      const std::vector<float> logits = RandomLogits(kVocab, seed);
      OwnedSampler sampler(params, eos, prompt);
      sampler.Observe(output);
      ASSERT_EQ(Processed(sampler, logits, {}),
                ReferenceProcess(logits, params, eos, prompt, output));
    }
  }
}

TEST(Processors, PathEqualsSequential) {
  constexpr int kVocab = 11;
  for (SamplingParams params : EachProcessorAndAll()) {
    params.seed = 99;
    params.logprobs = 3;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      params.temperature = seed % 2 == 0 ? 0.0f : 1.5f;
      const Tokens output = RandomTokens(10, kVocab, seed);
      OwnedSampler base(params, {10}, RandomTokens(7, kVocab, seed + 1));
      OwnedSampler sequential = base;
      base.Observe(std::span(output).first(4));
      sequential.Observe(output);
      std::vector<float> row = RandomLogits(kVocab, seed), same_row = row;
      const Choice along_path = base.Choose(row, std::span(output).subspan(4));
      const Choice one_by_one = sequential.Choose(same_row, {});
      ASSERT_EQ(along_path.token, one_by_one.token);
      ASSERT_EQ(along_path.log_prob, one_by_one.log_prob);
      ASSERT_EQ(row, same_row);
    }
  }
}

// Tokens that are in the base but were not observed can be taken back without a trace.
TEST(Sampler, UnobservedTokensCountAndCanBeTakenBack) {
  constexpr int kVocab = 11;
  for (const SamplingParams& params : EachProcessorAndAll()) {
    const Tokens output = RandomTokens(20, kVocab, 3);
    OwnedSampler rewound(params, {10}, RandomTokens(5, kVocab, 4));
    OwnedSampler fresh = rewound;
    OwnedSampler all = rewound;
    rewound.Observe(std::span(output).first(4));
    rewound.Append(std::span(output).subspan(4));
    all.Observe(output);
    const std::vector<float> logits = RandomLogits(kVocab, 5);
    EXPECT_EQ(Processed(rewound, logits, {1, 1}), Processed(all, logits, {1, 1}));
    rewound.tokens.resize(rewound.tokens.size() - 13);
    fresh.Observe(std::span(output).first(7));
    EXPECT_EQ(rewound.sampler.At(rewound.tokens).num_outputs(), 7);
    EXPECT_EQ(Processed(rewound, logits, {1, 1}), Processed(fresh, logits, {1, 1}));
  }
}

TEST(Sampler, PenaltiesComeBeforeBias) {
  const OwnedSampler sampler({.repetition_penalty = 2, .logit_bias = {{0, 3.0f}}}, {}, Tokens{0});
  EXPECT_EQ(Processed(sampler, {-1, 0}, {})[0], 1.0f);  // -1 * 2 + 3, not (-1 + 3) / 2
}

TEST(Sampler, MaskBeatsBias) {
  const OwnedSampler sampler(
      {.logit_bias = {{1, 100.0f}, {2, 100.0f}}, .bad_words = {{2}}, .min_tokens = 1}, {1},
      Tokens{0});
  EXPECT_EQ(Processed(sampler, {0, 0, 0}, {}), (std::vector<float>{0, -kInfinity, -kInfinity}));
}

TEST(Sampler, MinTokensMasksEosAndStopIdsAlongThePath) {
  OwnedSampler sampler({.stop_token_ids = {2}, .min_tokens = 3}, {1, 500}, Tokens{0});
  const std::vector<float> row = {0, 9, 8, 1};
  EXPECT_EQ(Processed(sampler, row, {3, 3}), (std::vector<float>{0, -kInfinity, -kInfinity, 1}));
  EXPECT_EQ(Processed(sampler, row, {3, 3, 3}), row);
  EXPECT_FALSE(sampler.IsPlainGreedy());
  sampler.Observe(Tokens{3, 3, 3});
  EXPECT_TRUE(sampler.IsPlainGreedy());
  EXPECT_EQ(Processed(sampler, row, {}), row);
}

TEST(Sampler, BadWordSpansBaseAndPath) {
  OwnedSampler sampler({.bad_words = {{5, 6, 7}}}, {}, Tokens{1, 5});
  const std::vector<float> row(8, 1.0f);
  EXPECT_EQ(Processed(sampler, row, {6})[7], -kInfinity);
  EXPECT_EQ(Processed(sampler, row, {5, 6})[7], -kInfinity);
  EXPECT_EQ(Processed(sampler, row, {6, 6})[7], 1.0f);
  EXPECT_EQ(Processed(sampler, row, {})[7], 1.0f);
}

TEST(Sampler, EverythingMaskedIsADeadEnd) {
  for (const float temperature : {0.0f, 1.0f}) {
    const OwnedSampler sampler({.temperature = temperature, .bad_words = {{0}}, .logprobs = 2}, {},
                               Tokens{0});
    std::vector<float> row = {1, -kInfinity};  // a grammar left only token 0
    const Choice choice = sampler.Choose(row, {});
    EXPECT_TRUE(choice.dead_end);
    EXPECT_EQ(choice.token, -1);
    std::vector<float> probs;
    EXPECT_FALSE(sampler.Distribution(row, {}, &probs));
  }
}

TEST(Sampler, GreedyTiesToLowestId) {
  const OwnedSampler sampler({}, {}, Tokens{0});
  EXPECT_TRUE(sampler.IsPlainGreedy());
  std::vector<float> row = {0, 3, 1, 3};
  EXPECT_EQ(sampler.Choose(row, {}).token, 1);
  std::vector<float> probs;
  ASSERT_TRUE(sampler.Distribution(row, {}, &probs));
  EXPECT_EQ(probs, (std::vector<float>{0, 1, 0, 0}));
}

TEST(Sampler, InfiniteLogitIsTaken) {
  const OwnedSampler sampler({.temperature = 1, .seed = 3}, {}, Tokens{0});
  std::vector<float> row = {0, kInfinity, 5}, probs;
  EXPECT_EQ(sampler.Choose(row, {}).token, 1);
  ASSERT_TRUE(sampler.Distribution(row, {}, &probs));
  EXPECT_EQ(probs, (std::vector<float>{0, 1, 0}));
}

TEST(Sampler, AnyProcessorEndsPlainGreedy) {
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0.1f}, SamplingParams{.repetition_penalty = 1.1f},
        SamplingParams{.frequency_penalty = 0.1f}, SamplingParams{.presence_penalty = 0.1f},
        SamplingParams{.logit_bias = {{0, 1.0f}}}, SamplingParams{.bad_words = {{0}}},
        SamplingParams{.min_tokens = 1}, SamplingParams{.logprobs = 0}}) {
    EXPECT_FALSE(OwnedSampler(params, {}, Tokens{0}).IsPlainGreedy());
  }
}

// Permits says of every token what the mask says, ends and ids without text included.
TEST(Sampler, PermitsWhatTheMaskLeaves) {
  std::vector<std::string> bytes = {"a", "b", "c", "ab", "bc", "ca", "", "x", "abc", "a"};
  const TokenTrie trie(bytes);
  const int vocabulary = trie.vocabulary() + 3;  // a padded embedding
  std::mt19937 random(4);
  int refused = 0, ends = 0;
  for (int round = 0; round < 200; ++round) {
    SamplingParams params{.temperature = 0, .ignore_eos = random() % 2 == 0};
    params.grammar = std::make_shared<Matcher>(
        std::move(*RegexGrammar(round % 2 == 0 ? "(ab?c)*x" : "[abc]{0,5}")), &trie);
    params.stop_token_ids = {7};
    const OwnedSampler owned(params, {6, 9}, Tokens{0});
    const BoundSampler sampler = owned.sampler.At(owned.tokens);
    Tokens path;
    for (uint32_t n = random() % 3; n > 0; --n) path.push_back(static_cast<int32_t>(random() % 6));
    const std::vector<float> raw = RandomLogits(vocabulary, round);
    std::vector<float> logits = raw;
    const Choice choice = sampler.Choose(logits, path);
    for (int32_t token = 0; token < vocabulary; ++token) {
      EXPECT_EQ(sampler.Permits(token, path), logits[token] != -kInfinity) << round << " " << token;
    }
    const auto best = static_cast<int32_t>(std::ranges::max_element(raw) - raw.begin());
    if (sampler.Permits(best, path)) {
      EXPECT_EQ(choice.token, best);
    } else {
      ++refused;
    }
    ends += sampler.Permits(6, path) ? 1 : 0;
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 190);
  EXPECT_GT(ends, 20);
}

TEST(Sampler, LogProbsIgnoreTemperatureAndTruncation) {
  const std::vector<float> logits = RandomLogits(500, 8);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const OwnedSampler sampler({.temperature = 0.5f, .top_k = 1, .seed = 1, .logprobs = 4}, {},
                             Tokens{0});
  std::vector<float> row = logits;
  const Choice choice = sampler.Choose(row, {});
  ASSERT_EQ(choice.top.size(), 4u);
  EXPECT_EQ(choice.top[0].token, choice.token);
  EXPECT_EQ(choice.top[0].log_prob, choice.log_prob);
  for (const TopLogProb& top : choice.top) {
    EXPECT_NEAR(top.log_prob, logits[top.token] - std::log(sum), 2e-6);
  }
  EXPECT_TRUE(std::ranges::is_sorted(choice.top, std::greater<>(), &TopLogProb::log_prob));
}

// Pearson's statistic of `counts` against `probs`, and its degrees of freedom.
std::pair<double, double> ChiSquare(const std::vector<int>& counts, const std::vector<float>& probs,
                                    int draws) {
  double statistic = 0;
  double cells = 0;
  for (size_t token = 0; token < probs.size(); ++token) {
    if (probs[token] == 0) continue;
    const double expected = draws * static_cast<double>(probs[token]);
    statistic += (counts[token] - expected) * (counts[token] - expected) / expected;
    ++cells;
  }
  return {statistic, cells - 1};
}

// The bound is the 99.99 % quantile (Wilson-Hilferty); the seed is fixed, so the test is too.
TEST(Sampler, DrawsFollowTheDistribution) {
  constexpr int kDraws = 40000;
  std::vector<float> logits = RandomLogits(60, 9);
  for (float& logit : logits) logit /= 3;
  for (SamplingParams params :
       {SamplingParams{.temperature = 2}, SamplingParams{.temperature = 1, .top_k = 12},
        SamplingParams{.temperature = 1.5f, .top_p = 0.9f, .min_p = 0.02f}}) {
    params.seed = 1234;
    OwnedSampler sampler(params, {}, Tokens{0});
    std::vector<float> row = logits, probs;
    ASSERT_TRUE(sampler.Distribution(row, {}, &probs));
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) {
      row = logits;
      const int32_t token = sampler.Choose(row, {}).token;
      ASSERT_GT(probs[token], 0.0f);
      ++counts[token];
      sampler.Observe(Tokens{token});
    }
    const auto [statistic, freedom] = ChiSquare(counts, probs, kDraws);
    ASSERT_GE(freedom, 11);
    const double cube_root = 1 - 2 / (9 * freedom) + 3.72 * std::sqrt(2 / (9 * freedom));
    EXPECT_LT(statistic, freedom * std::pow(cube_root, 3));
  }
}

TEST(Sampler, SeedAndChoiceDecideTheText) {
  const auto draw_text = [](uint64_t seed, uint32_t choice) {
    OwnedSampler sampler({.temperature = 1, .seed = seed, .choice = choice}, {}, Tokens{0});
    Tokens text;
    for (int i = 0; i < 16; ++i) {
      std::vector<float> row(1000, 0.0f);
      text.push_back(sampler.Choose(row, text).token);
    }
    return text;
  };
  EXPECT_EQ(draw_text(7, 0), draw_text(7, 0));
  EXPECT_NE(draw_text(7, 0), draw_text(8, 0));
  EXPECT_NE(draw_text(7, 0), draw_text(7, 1));
}

TEST(Sampler, MissingSeedIsRandomAndReported) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 4; ++i) seeds.insert(Sampler({.temperature = 1}, {}, Tokens{0}).seed());
  EXPECT_GT(seeds.size(), 1u);
  EXPECT_EQ(Sampler({.seed = 5}, {}, Tokens{0}).seed(), 5u);
}

TEST(Sampler, EndsRequest) {
  const Sampler sampler({.stop_token_ids = {4}}, {2}, Tokens{0});
  EXPECT_TRUE(sampler.EndsRequest(2));
  EXPECT_TRUE(sampler.EndsRequest(4));
  EXPECT_FALSE(sampler.EndsRequest(3));
  const Sampler ignoring({.stop_token_ids = {4}, .ignore_eos = true}, {2}, Tokens{0});
  EXPECT_FALSE(ignoring.EndsRequest(2));
  EXPECT_TRUE(ignoring.EndsRequest(4));
}

TEST(SamplingParams, ErrorsNameParameterValueAndRange) {
  const auto message = [](const SamplingParams& params) { return params.Validate(100).message(); };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.temperature = -1}), "temperature: -1, must be 0 to 100");
  EXPECT_EQ(message({.temperature = NAN}), "temperature: nan, must be 0 to 100");
  EXPECT_EQ(message({.top_k = -1}), "top_k: -1, must be 0 or more");
  EXPECT_EQ(message({.top_p = 1.5f}), "top_p: 1.5, must be 0 to 1");
  EXPECT_EQ(message({.min_p = -0.5f}), "min_p: -0.5, must be 0 to 1");
  EXPECT_EQ(message({.repetition_penalty = 0}), "repetition_penalty: 0, must be 0.01 to 100");
  EXPECT_EQ(message({.frequency_penalty = 3}), "frequency_penalty: 3, must be -2 to 2");
  EXPECT_EQ(message({.presence_penalty = -kInfinity}), "presence_penalty: -inf, must be -2 to 2");
  EXPECT_EQ(message({.logit_bias = {{100, 1.0f}}}), "logit_bias token: 100, must be 0 to 99");
  EXPECT_EQ(message({.logit_bias = {{1, 101.0f}}}), "logit_bias: 101, must be -100 to 100");
  EXPECT_EQ(message({.logit_bias = {{2, 1.0f}, {2, 1.0f}}}),
            "logit_bias token: 2 after 2, must be ascending, none twice");
  EXPECT_EQ(message({.bad_words = {{1}, {}}}), "bad_words entry 1: 0 tokens, must be 1 or more");
  EXPECT_EQ(message({.bad_words = {{1, -2}}}), "bad_words token: -2, must be 0 to 99");
  EXPECT_EQ(message({.stop_token_ids = {100}}), "stop_token_ids token: 100, must be 0 to 99");
  EXPECT_EQ(message({.min_tokens = 9, .max_tokens = 8}), "min_tokens: 9, must be 0 to 8");
  EXPECT_EQ(message({.max_tokens = -1}), "max_tokens: -1, must be 0 or more");
  EXPECT_EQ(message({.logprobs = 129}), "logprobs: 129, must be -1 to 128");
  EXPECT_EQ(message({.choice = 1u << 24}), "choice: 16777216, must be 0 to 16777215");
}

}  // namespace
}  // namespace talon
