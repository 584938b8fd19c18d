// The prefix cache inside the engine: prompts that were seen skip their pass, and nothing else
// changes.
#include <gtest/gtest.h>

#include "engine/recording_drafter.h"
#include "engine/test_engine.h"
#include "spec/drafters/heads/eagle_drafter.h"
#include "spec/drafters/registry.h"

namespace talon {
namespace {

constexpr DraftBudget kCacheBudget{.max_nodes = 12, .max_depth = 5, .top_k = 4};
constexpr int kCacheMaxLength = 1024;
constexpr int kCacheSequences = 4;

std::string ModelDir(const std::string& name) {
  return std::string(TALON_SOURCE_DIR) + "/models/" + name;
}

EngineOptions CacheOptions(bool cache) {
  EngineOptions options{.max_length = kCacheMaxLength,
                        .max_sequences = kCacheSequences,
                        .kv_audit = true,
                        .prefix_cache = cache};
  options.step.budget = kCacheBudget;
  return options;
}

std::unique_ptr<Drafter> NewCacheDrafter(const std::string& name, bool cache, Metrics* metrics) {
  if (name == "NONE") return nullptr;
  auto drafter = MakeDrafter(
      DrafterList::Parse(name).value(),
      {.draft_model_path = ModelDir(name == "STANDALONE" ? "tiny-draft" : "tiny-eagle3"),
       .budget = kCacheBudget},
      {.backend = Tiny().backend.get(),
       .decoder = Tiny().target.get(),
       .metrics = metrics,
       .vocab_size = 8192,
       .cache = {.max_length = kCacheMaxLength,
                 .max_sequences = kCacheSequences,
                 .prefix_index = cache}});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

const std::string kLongStory =
    "The captain looked at the sea and said nothing for a while. The crew waited. Nobody had seen "
    "such weather before, and the oldest of them, who had been at sea for forty years, only shook "
    "his head and went below to see to the ropes. ";

GenerateRequest CacheRequest(std::vector<int32_t> prompt, int max_tokens = 40) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.logprobs = 3;
  return request;
}

void ExpectSameAnswer(const GenerateResult& a, const GenerateResult& b) {
  EXPECT_EQ(a.TokenIds(), b.TokenIds());
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].log_prob, b.tokens[i].log_prob) << "token " << i;
  }
}

// A talk of three turns; each prompt has the whole talk so far. Answers by the engine itself.
std::vector<GenerateResult> Converse(Engine* engine) {
  std::vector<GenerateResult> results;
  std::vector<int32_t> talk = Encode(kLongStory);
  for (const char* turn : {"Then he said:", " But the wind", " At last"}) {
    const std::vector<int32_t> more = Tiny().tokenizer->Encode(turn, false).value();
    talk.insert(talk.end(), more.begin(), more.end());
    results.push_back(engine->Generate(CacheRequest(talk)).value());
    EXPECT_TRUE(engine->CheckIntegrity().ok());
    const std::vector<int32_t> answer = results.back().TokenIds();
    talk.insert(talk.end(), answer.begin(), answer.end());
  }
  return results;
}

// A block that others use is copied before it is written, with its scales.
TEST(PrefixCacheTypes, QuantisedEqualsColdRun) {
  for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
    std::vector<GenerateResult> expected;
    for (const bool cache : {false, true}) {
      Metrics metrics;
      EngineOptions options = CacheOptions(cache);
      options.kv_dtype = dtype;
      const auto engine = Tiny().MakeEngine(options, NewCacheDrafter("EAGLE3", cache, &metrics));
      for (int round = 0; round < 2; ++round) {
        const std::vector<GenerateResult> results = Converse(engine.get());
        if (expected.empty()) expected = results;
        for (size_t i = 0; i < results.size(); ++i) ExpectSameAnswer(results[i], expected[i]);
      }
      EXPECT_EQ(engine->metrics().Total(Counter::kKvPrefixHitTokens) > 500, cache);
      EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
    }
  }
}

class PrefixCache : public testing::TestWithParam<const char*> {};

TEST_P(PrefixCache, EqualsColdRun) {
  const std::string name = GetParam();
  Metrics metrics;
  const auto cold = Tiny().MakeEngine(CacheOptions(false), NewCacheDrafter(name, false, &metrics));
  const auto warm = Tiny().MakeEngine(CacheOptions(true), NewCacheDrafter(name, true, &metrics));
  const std::vector<GenerateResult> expected = Converse(cold.get());
  for (int round = 0; round < 2; ++round) {
    const std::vector<GenerateResult> results = Converse(warm.get());
    for (size_t i = 0; i < results.size(); ++i) {
      ExpectSameAnswer(results[i], expected[i]);
      if (round + i > 0) {
        // All full blocks before the root, the answer's included but for its last few tokens.
        const int64_t prompt = results[i].stats.prompt_tokens;
        EXPECT_GE(results[i].stats.cached_tokens, prompt - 2 * 16 - 8);
      }
    }
  }
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  EXPECT_GT(warm->metrics().Total(Counter::kKvPrefixHitTokens), 500);
  EXPECT_EQ(cold->metrics().Total(Counter::kKvPrefixQueryTokens), 0);
}

INSTANTIATE_TEST_SUITE_P(Drafters, PrefixCache,
                         testing::Values("NONE", "SUFFIX", "STANDALONE", "EAGLE3", "EAGLE3,SUFFIX"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ',', '_');
                           return name;
                         });

TEST(PrefixIndex, HitRateEqualsSpecOff) {
  const auto hits = [](const std::string& name) {
    Metrics metrics;
    const auto engine =
        Tiny().MakeEngine(CacheOptions(true), NewCacheDrafter(name, true, &metrics));
    Converse(engine.get());
    Converse(engine.get());
    return engine->metrics().Total(Counter::kKvPrefixHitTokens);
  };
  const int64_t off = hits("NONE");
  EXPECT_GT(off, 500);
  EXPECT_EQ(hits("EAGLE3"), off);
  EXPECT_EQ(hits("SUFFIX"), off);
}

// ---- EAGLE-3: the draft's own rows ----

struct Recorded {
  Proposals proposals;
  GenerateResult result;
  int64_t recomputed = 0;
};

// What is proposed for `prompt` after the engine has answered `earlier`.
Recorded RunAfter(const std::vector<std::vector<int32_t>>& earlier,
                  const std::vector<int32_t>& prompt, bool cache, bool speculate_before = true) {
  Recorded run;
  Metrics metrics;
  const auto engine = Tiny().MakeEngine(
      CacheOptions(cache),
      std::make_unique<RecordingDrafter>(NewCacheDrafter("EAGLE3", cache, &metrics), &run.proposals,
                                         [](size_t) { return true; }));
  for (const auto& one : earlier) {
    GenerateRequest request = CacheRequest(one, 20);
    request.speculate = speculate_before;
    EXPECT_TRUE(engine->Generate(std::move(request)).ok());
  }
  run.proposals.clear();
  run.result = engine->Generate(CacheRequest(prompt)).value();
  EXPECT_EQ(metrics.Total(Counter::kSpecFallback), 0);
  run.recomputed = metrics.Total(Counter::kKvPrefixDraftRowsRecomputed);
  return run;
}

void ExpectSameRecords(const Proposals& a, const Proposals& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(ExpectSameProposals(a, b), static_cast<int>(a.size()));
}

TEST(Eagle3Prefix, CachedPromptKeepsProposals) {
  const std::vector<int32_t> prompt = Encode(kLongStory + "Then he");
  const Recorded cold = RunAfter({}, prompt, false);
  const Recorded warm = RunAfter({prompt}, prompt, true);
  EXPECT_GT(warm.result.stats.cached_tokens, 32);
  ExpectSameRecords(warm.proposals, cold.proposals);
  ExpectSameAnswer(warm.result, cold.result);
}

// The target's blocks are shared up to a block's end, and the token after it differs.
TEST(Eagle3Prefix, OtherSuccessorCostsOneRow) {
  std::vector<int32_t> prompt = Encode(kLongStory);
  prompt.resize(3 * 16);
  std::vector<int32_t> other = prompt;
  const std::vector<int32_t> ends = Encode(" storm wind said");
  prompt.insert(prompt.end(), {ends[1], ends[2], ends[3]});
  other.insert(other.end(), {ends[3], ends[2], ends[1]});
  const Recorded cold = RunAfter({}, other, false);
  const Recorded warm = RunAfter({prompt}, other, true);
  EXPECT_EQ(warm.result.stats.cached_tokens, 3 * 16);
  EXPECT_EQ(warm.recomputed, 1);
  ExpectSameRecords(warm.proposals, cold.proposals);
  ExpectSameAnswer(warm.result, cold.result);
}

// Rows that the draft never had: it drafts from what comes after them.
TEST(Eagle3Prefix, DraftsAfterRowsItNeverSaw) {
  const std::vector<int32_t> prompt = Encode(kLongStory + "Then he");
  const Recorded cold = RunAfter({}, prompt, false);
  const Recorded warm = RunAfter({prompt}, prompt, true, /*speculate_before=*/false);
  EXPECT_GT(warm.result.stats.cached_tokens, 32);
  EXPECT_GT(warm.result.stats.accepted, 5);
  ExpectSameAnswer(warm.result, cold.result);
}

// ---- Several at once ----

TEST(PrefixCacheBatch, EqualPromptsAreComputedOnce) {
  const std::vector<int32_t> prompt = Encode(kLongStory + "Then he");
  const auto cold = Tiny().MakeEngine(CacheOptions(false));
  const auto warm = Tiny().MakeEngine(CacheOptions(true));
  std::vector<GenerateRequest> requests;
  std::vector<GenerateResult> expected;
  for (uint32_t choice = 0; choice < kCacheSequences; ++choice) {
    GenerateRequest request = CacheRequest(prompt);
    request.sampling.temperature = 0.8f;
    request.sampling.seed = 5;
    request.sampling.choice = choice;
    expected.push_back(cold->Generate(request).value());
    requests.push_back(std::move(request));
  }
  const std::vector<GenerateResult> results = RunBatch(warm.get(), std::move(requests));
  for (size_t i = 0; i < results.size(); ++i) ExpectSameAnswer(results[i], expected[i]);
  EXPECT_NE(results[0].TokenIds(), results[1].TokenIds());
  const int64_t per_token = static_cast<int64_t>(warm->kv().shape().BytesPerToken());
  const auto computed = warm->metrics().Get(Counter::kKvBytesWritten, "prefill") / per_token;
  EXPECT_LT(computed, static_cast<int64_t>(prompt.size()) + kCacheSequences * 16);
}

TEST(PrefixCacheBatch, PartialVerificationIsExactOnCachedPrompts) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += kLongStory;
  const std::vector<int32_t> prompt = Encode(text + "Then he");
  const auto cold = Tiny().MakeEngine(CacheOptions(false));
  const GenerateResult expected = cold->Generate(CacheRequest(prompt)).value();
  EngineOptions options = CacheOptions(true);
  options.step.specpv = {.enabled = true,
                         .sink_blocks = 1,
                         .retrieval_blocks = 4,
                         .window_blocks = 2,
                         .buffer_tokens = 40,
                         .partial_threshold = 200};
  Metrics metrics;
  const auto warm = Tiny().MakeEngine(options, NewCacheDrafter("EAGLE3", true, &metrics));
  for (int round = 0; round < 2; ++round) {
    const GenerateResult result = warm->Generate(CacheRequest(prompt)).value();
    EXPECT_GT(result.stats.partial_passes, 0);
    EXPECT_EQ(result.TokenIds(), expected.TokenIds());
    EXPECT_EQ(result.stats.cached_tokens > 0, round > 0);
  }
}

}  // namespace
}  // namespace talon
