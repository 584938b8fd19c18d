#include "spec/specpv/gate.h"

#include <algorithm>

#include "spec/specpv/selection.h"

namespace talon {
namespace {

// REQUIRES: the sequence is long enough.
std::optional<RefreshReason> TriggerOf(const SpecPvConfig& config, const GateState& state) {
  // With an empty tail there is nothing to finish.
  const bool has_tail = state.provisional_tokens > 0;
  const bool exact = config.mode == SpecPvMode::kExact;
  if (!state.selected) return RefreshReason::kInit;
  if (state.provisional_tokens + state.tree_nodes > config.buffer_tokens) {
    return RefreshReason::kCapacity;
  }
  if (state.partial_steps >= config.full_refresh_interval) return RefreshReason::kInterval;
  if (exact && has_tail && state.finish_pending) return RefreshReason::kFinish;
  if (state.partial_steps >= state.interval) return RefreshReason::kDrift;
  if (exact && has_tail && state.provisional_tokens >= state.max_trunk) {
    return RefreshReason::kDrift;
  }
  if (state.settle_requested) return RefreshReason::kRequest;
  return std::nullopt;
}

}  // namespace

const char* RefreshReasonName(RefreshReason reason) {
  switch (reason) {
    case RefreshReason::kInit:
      return "init";
    case RefreshReason::kCapacity:
      return "capacity";
    case RefreshReason::kInterval:
      return "interval";
    case RefreshReason::kFinish:
      return "finish";
    case RefreshReason::kDrift:
      return "drift";
    case RefreshReason::kRequest:
      return "request";
  }
  return "unknown";
}

bool LongEnoughForPartial(const SpecPvConfig& config, const BlockBudget& budget,
                          int committed_len) {
  const int static_tokens = budget.Total() * config.block_size;
  return committed_len > std::max(config.partial_threshold, static_tokens) &&
         OmittedBlocks(budget, committed_len / config.block_size) > 0;
}

int TreeRoom(const SpecPvConfig& config, int provisional_tokens, int max_depth) {
  return config.buffer_tokens + max_depth + 1 - provisional_tokens;
}

GateDecision DecideVerification(const SpecPvConfig& config, const GateState& state) {
  if (!config.enabled || !state.supported || !state.pays ||
      !LongEnoughForPartial(config, state.budget, state.committed_len)) {
    // Whatever is provisional must be replayed by the next pass; it is never left behind.
    if (state.provisional_tokens > 0) return {.reason = RefreshReason::kRequest};
    return {};
  }
  const std::optional<RefreshReason> trigger = TriggerOf(config, state);
  if (!trigger) return {.partial = true};
  return {.reason = trigger, .select = true};
}

}  // namespace talon
