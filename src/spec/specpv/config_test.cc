#include "spec/specpv/config.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace talon {
namespace {

TEST(SpecPvConfigTest, DerivedSizesOfTheDefaults) {
  const SpecPvConfig config;
  EXPECT_FALSE(config.enabled);
  EXPECT_EQ(config.SinkTokens(), 32);
  EXPECT_EQ(config.RetrievalTokens(), 4096);
  EXPECT_EQ(config.WindowTokens(), 128);
  EXPECT_EQ(config.StaticTokens(), 4256);
  EXPECT_EQ(config.TotalTokens(), 4384);
  EXPECT_EQ(config.Budget().Total(), 266);
  EXPECT_TRUE(ValidateSpecPvConfig(config).ok());
}

TEST(SpecPvConfigTest, SelectorsShapeTheBudget) {
  SpecPvConfig config;
  const BlockBudget all{.sink = 2, .retrieval = 256, .window = 8};
  for (const auto selector : {SpecPvSelector::kAttention, SpecPvSelector::kQuest,
                              SpecPvSelector::kQuestBound, SpecPvSelector::kH2o}) {
    config.selector = selector;
    EXPECT_EQ(config.Budget(), all);
    EXPECT_EQ(config.NeedsSummaries(), selector != SpecPvSelector::kAttention);
  }
  config.selector = SpecPvSelector::kStreaming;
  EXPECT_EQ(config.Budget(), (BlockBudget{.sink = 2, .retrieval = 0, .window = 8}));
  EXPECT_FALSE(config.NeedsSummaries());
  config.selector = SpecPvSelector::kSliding;
  EXPECT_EQ(config.Budget(), (BlockBudget{.sink = 0, .retrieval = 0, .window = 8}));
  EXPECT_FALSE(config.NeedsSummaries());
}

TEST(SpecPvConfigTest, NamesParseBack) {
  for (const auto mode : {SpecPvMode::kExact, SpecPvMode::kFast}) {
    EXPECT_EQ(*ParseSpecPvMode(SpecPvModeName(mode)), mode);
  }
  for (const char* name : {"attention", "quest", "quest_bound", "h2o", "streaming", "sliding"}) {
    ASSERT_TRUE(ParseSpecPvSelector(name).ok());
    EXPECT_STREQ(SpecPvSelectorName(*ParseSpecPvSelector(name)), name);
  }
  for (const char* name : {"mean", "max", "root"}) {
    ASSERT_TRUE(ParseSpecPvReduce(name).ok());
    EXPECT_STREQ(SpecPvReduceName(*ParseSpecPvReduce(name)), name);
  }
}

TEST(SpecPvConfigTest, UnknownNamesListTheKnown) {
  EXPECT_EQ(ParseSpecPvMode("quick").status().message(),
            "specpv_mode: 'quick', must be exact or fast");
  EXPECT_EQ(ParseSpecPvSelector("").status().message(),
            "specpv_selector: '', must be auto, attention, quest, quest_bound, h2o, streaming or "
            "sliding");
  EXPECT_EQ(ParseSpecPvReduce("last").status().message(),
            "specpv_reduce: 'last', must be mean, max or root");
}

TEST(SpecPvConfigTest, OnlyFastModeIsLossy) {
  EXPECT_FALSE((SpecPvConfig{.enabled = true, .mode = SpecPvMode::kExact}).lossy());
  EXPECT_TRUE((SpecPvConfig{.enabled = true, .mode = SpecPvMode::kFast}).lossy());
  EXPECT_FALSE((SpecPvConfig{.enabled = false, .mode = SpecPvMode::kFast}).lossy());
}

TEST(SpecPvConfigTest, ValidationNamesKeyValueAndRange) {
  const auto error_of = [](const SpecPvConfig& config) {
    return ValidateSpecPvConfig(config).message();
  };
  EXPECT_EQ(error_of({.block_size = 24}), "specpv_block_size: 24, must be 8, 16, 32 or 64");
  EXPECT_EQ(error_of({.sink_blocks = -1}), "specpv_n_sink_blocks: -1, must be 0 to 131072");
  EXPECT_EQ(error_of({.retrieval_blocks = 1 << 30}),
            "specpv_n_retrieval_blocks: 1073741824, must be 0 to 131072");
  EXPECT_EQ(error_of({.window_blocks = 0}), "specpv_n_window_blocks: 0, must be 1 to 131072");
  EXPECT_EQ(error_of({.buffer_tokens = 0}), "specpv_n_spec_tokens_buf: 0, must be 1 to 4096");
  EXPECT_EQ(error_of({.partial_threshold = -5}),
            "specpv_partial_threshold: -5, must be 0 to 16777216");
  EXPECT_EQ(error_of({.full_refresh_interval = 0}),
            "specpv_full_refresh_interval: 0, must be 1 to 1048576");
  EXPECT_EQ(error_of({.shadow_rate = 1.5f}), "specpv_shadow_rate: 1.5, must be 0 to 1");
  EXPECT_EQ(error_of({.error_target = -0.25f}), "specpv_error_target: -0.25, must be 0 to 1");
  EXPECT_EQ(error_of({.error_target = std::numeric_limits<float>::quiet_NaN()}),
            "specpv_error_target: nan, must be 0 to 1");
}

TEST(SpecPvConfigTest, LargestSizesDoNotOverflow) {
  const SpecPvConfig config{.block_size = 64,
                            .sink_blocks = 131072,
                            .retrieval_blocks = 131072,
                            .window_blocks = 131072,
                            .buffer_tokens = 4096};
  ASSERT_TRUE(ValidateSpecPvConfig(config).ok());
  EXPECT_EQ(config.TotalTokens(), 3 * 131072 * 64 + 4096);
}

TEST(SpecPvPreflightTest, BufferMustAllowASecondPartialStep) {
  SpecPvConfig config{.enabled = true, .buffer_tokens = 69};
  const SpecPvHost host{.max_tree_nodes = 60, .max_depth = 8};
  EXPECT_FALSE(SpecPvPreflight(config, host).has_value());
  config.buffer_tokens = 64;
  const auto fallback = SpecPvPreflight(config, host);
  ASSERT_TRUE(fallback.has_value());
  EXPECT_STREQ(SpecPvFallbackName(fallback->reason), "buffer_too_small");
  EXPECT_EQ(fallback->detail, "buffer 64 < tree 60 + depth 8 + 1");
  config.buffer_tokens = 68;
  EXPECT_TRUE(SpecPvPreflight(config, host).has_value());
}

TEST(SpecPvPreflightTest, AnEngineWithoutDraftsNeedsTwoRows) {
  EXPECT_FALSE(SpecPvPreflight({.enabled = true, .buffer_tokens = 2}, SpecPvHost()).has_value());
  const auto fallback = SpecPvPreflight({.enabled = true, .buffer_tokens = 1}, SpecPvHost());
  ASSERT_TRUE(fallback.has_value());
  EXPECT_EQ(fallback->detail, "buffer 1 < tree 1 + depth 0 + 1");
}

TEST(SpecPvPreflightTest, AutoIsAttentionWhereTheDeviceScoresByIt) {
  const auto chosen = [](SpecPvSelector selector, bool scores_by_attention) {
    SpecPvConfig config{.selector = selector};
    ChooseSelector({.scores_by_attention = scores_by_attention}, &config);
    return config.selector;
  };
  EXPECT_EQ(chosen(SpecPvSelector::kAuto, true), SpecPvSelector::kAttention);
  EXPECT_EQ(chosen(SpecPvSelector::kAuto, false), SpecPvSelector::kQuest);
  EXPECT_EQ(chosen(SpecPvSelector::kH2o, true), SpecPvSelector::kH2o);
}

TEST(SpecPvPreflightTest, WhatTheEngineMustOffer) {
  SpecPvConfig config{.enabled = true};
  const auto reason_of = [&](const SpecPvHost& host) {
    const auto fallback = SpecPvPreflight(config, host);
    return fallback ? std::string(SpecPvFallbackName(fallback->reason)) : "";
  };
  EXPECT_EQ(reason_of({.kv_block_size = 16}), "");
  EXPECT_EQ(reason_of({.kv_block_size = 32}), "block_size");
  EXPECT_EQ(reason_of({.scores_by_attention = false}), "");
  config.selector = SpecPvSelector::kAttention;
  EXPECT_EQ(reason_of({.scores_by_attention = true}), "");
  EXPECT_EQ(reason_of({.scores_by_attention = false}), "selector");
}

TEST(SpecPvFallbackTest, AllocatesAgainWithoutIt) {
  Metrics metrics;
  SpecPvConfig config{.enabled = true};
  std::vector<bool> tried;
  const auto allocate = [&](Status with, Status without) {
    tried.clear();
    return AllocateOrGiveUp(&config, &metrics, [&, with, without] {
      tried.push_back(config.enabled);
      return config.enabled ? with : without;
    });
  };
  EXPECT_EQ(allocate(InvalidArgument("shape"), OkStatus()).message(), "shape");
  EXPECT_TRUE(config.enabled);
  EXPECT_TRUE(allocate(ResourceExhausted("full"), OkStatus()).ok());
  EXPECT_EQ(tried, (std::vector<bool>{true, false}));
  EXPECT_FALSE(config.enabled);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvFallback, "no_memory"), 1);
  EXPECT_EQ(allocate(OkStatus(), ResourceExhausted("full")).message(), "full");
  EXPECT_EQ(tried, std::vector<bool>{false});
  EXPECT_EQ(metrics.Total(Counter::kSpecPvFallback), 1);
}

TEST(SpecPvFallbackTest, CountsByReason) {
  Metrics metrics;
  ReportSpecPvFallback({SpecPvFallbackReason::kNanScores, "layer 3"}, &metrics);
  ReportSpecPvFallback({SpecPvFallbackReason::kNanScores, "layer 4"}, &metrics);
  EXPECT_EQ(metrics.Get(Counter::kSpecPvFallback, "nan_scores"), 2);
  EXPECT_EQ(metrics.Total(Counter::kSpecPvFallback), 2);
}

TEST(SpecPvBudgetTest, FixedUnlessAdaptive) {
  const SpecPvConfig config{.enabled = true};
  const auto budget = SpecPvBudgetOf(config, {.prompt_tokens = 100000, .max_tokens = 1});
  ASSERT_TRUE(budget.has_value());
  EXPECT_EQ(*budget, config.Budget());
  EXPECT_FALSE(SpecPvBudgetOf({.enabled = false}, {.prompt_tokens = 100000}).has_value());
}

TEST(SpecPvBudgetTest, FastModeKeepsLogprobsFull) {
  const SpecPvRequest request{.prompt_tokens = 9000, .max_tokens = 100, .wants_logprobs = true};
  EXPECT_FALSE(SpecPvBudgetOf({.enabled = true, .mode = SpecPvMode::kFast}, request).has_value());
  EXPECT_TRUE(SpecPvBudgetOf({.enabled = true, .mode = SpecPvMode::kExact}, request).has_value());
}

TEST(SpecPvBudgetTest, AdaptiveByLength) {
  const SpecPvConfig config{.enabled = true, .adaptive = true};
  const auto retrieval = [&](int prompt, int max_tokens) {
    const auto budget =
        SpecPvBudgetOf(config, {.prompt_tokens = prompt, .max_tokens = max_tokens, .max_depth = 8});
    return budget ? budget->retrieval : -1;
  };
  EXPECT_EQ(retrieval(4000, 96), -1);
  EXPECT_EQ(retrieval(4000, 97), 256);
  EXPECT_EQ(retrieval(16384 - 100, 100), 256);
  EXPECT_EQ(retrieval(16384 - 100, 101), 128);
  EXPECT_EQ(retrieval(65536 - 100, 100), 128);
  EXPECT_EQ(retrieval(65536 - 100, 101), 64);
  EXPECT_EQ(retrieval(std::numeric_limits<int>::max(), 100), 64);
  EXPECT_EQ(retrieval(9000, 17), -1);  // ends before two steps of depth 8 could
  EXPECT_EQ(retrieval(9000, 18), 256);
}

TEST(SpecPvBudgetTest, AdaptiveNeverBelow32OrAboveTheConfigured) {
  SpecPvConfig config{.enabled = true, .retrieval_blocks = 100, .adaptive = true};
  const SpecPvRequest request{.prompt_tokens = 100000, .max_tokens = 100};
  EXPECT_EQ(SpecPvBudgetOf(config, request)->retrieval, 32);
  config.retrieval_blocks = 20;
  EXPECT_EQ(SpecPvBudgetOf(config, request)->retrieval, 20);
  config.selector = SpecPvSelector::kStreaming;
  EXPECT_EQ(SpecPvBudgetOf(config, request)->retrieval, 0);
}

}  // namespace
}  // namespace talon
