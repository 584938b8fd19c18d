#include "spec/specpv/config.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/math.h"

namespace talon {
namespace {

// Adaptive budgets.
constexpr int64_t kMediumLength = 16 * 1024;
constexpr int64_t kLongLength = 64 * 1024;
constexpr int kMinRetrievalBlocks = 32;

template <typename T, size_t kCount>
using NameTable = std::array<std::pair<const char*, T>, kCount>;

constexpr NameTable<SpecPvMode, 2> kModes = {
    {{"exact", SpecPvMode::kExact}, {"fast", SpecPvMode::kFast}}};
constexpr NameTable<SpecPvSelector, 7> kSelectors = {{{"auto", SpecPvSelector::kAuto},
                                                      {"attention", SpecPvSelector::kAttention},
                                                      {"quest", SpecPvSelector::kQuest},
                                                      {"quest_bound", SpecPvSelector::kQuestBound},
                                                      {"h2o", SpecPvSelector::kH2o},
                                                      {"streaming", SpecPvSelector::kStreaming},
                                                      {"sliding", SpecPvSelector::kSliding}}};
constexpr NameTable<SpecPvReduce, 3> kReductions = {
    {{"mean", SpecPvReduce::kMean}, {"max", SpecPvReduce::kMax}, {"root", SpecPvReduce::kRoot}}};

template <typename T, size_t kCount>
const char* NameIn(const NameTable<T, kCount>& table, T value) {
  for (const auto& [name, each] : table) {
    if (each == value) return name;
  }
  return "unknown";
}

// "exact or fast", "mean, max or root"
template <typename T, size_t kCount>
std::string ListNames(const NameTable<T, kCount>& table) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) names.emplace_back(name);
  return JoinWithOr(names);
}

template <typename T, size_t kCount>
Result<T> ParseName(const NameTable<T, kCount>& table, const char* key, std::string_view name) {
  for (const auto& [each, value] : table) {
    if (name == each) return value;
  }
  return InvalidArgument("{}: '{}', must be {}", key, name, ListNames(table));
}

bool IsBlockSize(int size) { return size == 8 || size == 16 || size == 32 || size == 64; }

}  // namespace

const char* SpecPvModeName(SpecPvMode mode) { return NameIn(kModes, mode); }
const char* SpecPvSelectorName(SpecPvSelector selector) { return NameIn(kSelectors, selector); }
const char* SpecPvReduceName(SpecPvReduce reduce) { return NameIn(kReductions, reduce); }

Result<SpecPvMode> ParseSpecPvMode(std::string_view name) {
  return ParseName(kModes, "specpv_mode", name);
}
Result<SpecPvSelector> ParseSpecPvSelector(std::string_view name) {
  return ParseName(kSelectors, "specpv_selector", name);
}
Result<SpecPvReduce> ParseSpecPvReduce(std::string_view name) {
  return ParseName(kReductions, "specpv_reduce", name);
}

BlockBudget SpecPvConfig::Budget() const {
  const bool has_sink = selector != SpecPvSelector::kSliding;
  return {.sink = has_sink ? sink_blocks : 0,
          .retrieval = RanksBlocks() ? retrieval_blocks : 0,
          .window = window_blocks};
}

bool SpecPvConfig::RanksBlocks() const {
  return selector != SpecPvSelector::kStreaming && selector != SpecPvSelector::kSliding;
}

bool SpecPvConfig::NeedsSummaries() const {
  return RanksBlocks() && selector != SpecPvSelector::kAttention;
}

SpecPvConfig WithOverrides(SpecPvConfig config, const SpecPvOverrides& overrides) {
  if (overrides.mode) config.mode = *overrides.mode;
  if (overrides.budget_tokens) {
    config.retrieval_blocks = CeilDiv(*overrides.budget_tokens, config.block_size);
  }
  if (overrides.error_target) config.error_target = *overrides.error_target;
  return config;
}

Status ValidateSpecPvConfig(const SpecPvConfig& c) {
  using C = SpecPvConfig;
  if (!IsBlockSize(c.block_size)) {
    return InvalidArgument("specpv_block_size: {}, must be 8, 16, 32 or 64", c.block_size);
  }
  TALON_RETURN_IF_ERROR(CheckRange("specpv_n_sink_blocks", c.sink_blocks, C::kBlocksRange));
  TALON_RETURN_IF_ERROR(
      CheckRange("specpv_n_retrieval_blocks", c.retrieval_blocks, C::kBlocksRange));
  TALON_RETURN_IF_ERROR(CheckRange("specpv_n_window_blocks", c.window_blocks, C::kWindowRange));
  TALON_RETURN_IF_ERROR(CheckRange("specpv_n_spec_tokens_buf", c.buffer_tokens, C::kBufferRange));
  TALON_RETURN_IF_ERROR(
      CheckRange("specpv_partial_threshold", c.partial_threshold, C::kThresholdRange));
  TALON_RETURN_IF_ERROR(
      CheckRange("specpv_full_refresh_interval", c.full_refresh_interval, C::kIntervalRange));
  TALON_RETURN_IF_ERROR(CheckRange("specpv_shadow_rate", c.shadow_rate, C::kShareRange));
  return CheckRange("specpv_error_target", c.error_target, C::kShareRange);
}

void ChooseSelector(const SpecPvHost& host, SpecPvConfig* config) {
  if (config->selector != SpecPvSelector::kAuto) return;
  config->selector = host.scores_by_attention ? SpecPvSelector::kAttention : SpecPvSelector::kQuest;
}

std::optional<SpecPvFallback> SpecPvPreflight(const SpecPvConfig& config, const SpecPvHost& host) {
  if (config.block_size != host.kv_block_size) {
    return SpecPvFallback{SpecPvFallbackReason::kBlockSize,
                          fmt::format("specpv_block_size {}, KV blocks have {} tokens",
                                      config.block_size, host.kv_block_size)};
  }
  if (config.buffer_tokens < host.max_tree_nodes + host.max_depth + 1) {
    return SpecPvFallback{SpecPvFallbackReason::kBufferTooSmall,
                          fmt::format("buffer {} < tree {} + depth {} + 1", config.buffer_tokens,
                                      host.max_tree_nodes, host.max_depth)};
  }
  if (config.selector == SpecPvSelector::kAttention && !host.scores_by_attention) {
    return SpecPvFallback{SpecPvFallbackReason::kSelector,
                          "attention runs on the CPU only; quest runs on this device"};
  }
  return std::nullopt;
}

Status AllocateOrGiveUp(SpecPvConfig* config, Metrics* metrics,
                        const std::function<Status()>& allocate) {
  const Status status = allocate();
  if (status.code() != StatusCode::kResourceExhausted || !config->enabled) return status;
  ReportSpecPvFallback({SpecPvFallbackReason::kNoMemory, status.message()}, metrics);
  config->enabled = false;
  return allocate();
}

std::optional<BlockBudget> SpecPvBudgetOf(const SpecPvConfig& config,
                                          const SpecPvRequest& request) {
  if (!config.enabled) return std::nullopt;
  // A provisional token's log-probs would come from a partial view and never be put right.
  if (config.mode == SpecPvMode::kFast && request.wants_logprobs) return std::nullopt;
  BlockBudget budget = config.Budget();
  if (!config.adaptive) return budget;
  const int64_t length = int64_t{request.prompt_tokens} + request.max_tokens;
  if (length <= config.partial_threshold) return std::nullopt;
  if (request.max_tokens < 2 * (request.max_depth + 1)) return std::nullopt;
  const int divisor = length <= kMediumLength ? 1 : length <= kLongLength ? 2 : 4;
  budget.retrieval =
      std::min(budget.retrieval, std::max(kMinRetrievalBlocks, budget.retrieval / divisor));
  return budget;
}

}  // namespace talon
