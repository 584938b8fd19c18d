// Settings of partial verification (SpecPV) and the sizes that follow from them.
//
// A partial row sees, per (layer, kv head): the first S blocks of the sequence (sink), R retrieved
// blocks, the last W full blocks (window) with the partial block after them, the provisional tail
// and its own tree. Plain values, checked once; no state.
#ifndef TALON_SPEC_SPECPV_CONFIG_H_
#define TALON_SPEC_SPECPV_CONFIG_H_

#include <functional>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "base/valid_values.h"
#include "spec/specpv/fallback.h"

namespace talon {

// kExact re-checks every provisional token in a full pass before it leaves the engine; kFast
// emits it at once and never re-checks it (lossy).
enum class SpecPvMode { kExact, kFast };
// How blocks are ranked: by the attention that a full pass's queries pay them, by query and key
// summary (the next two), by key norm, or not at all (kStreaming: sink and window only; kSliding:
// window only). kAuto: by attention where the device can, else kQuest.
enum class SpecPvSelector { kAttention, kQuest, kQuestBound, kH2o, kStreaming, kSliding, kAuto };
// How the scores of a pass's query rows become one.
enum class SpecPvReduce { kMean, kMax, kRoot };

const char* SpecPvModeName(SpecPvMode mode);              // "exact"
const char* SpecPvSelectorName(SpecPvSelector selector);  // "quest_bound"
const char* SpecPvReduceName(SpecPvReduce reduce);        // "mean"
// An unknown name is an error that starts with the setting's key and lists the valid names.
Result<SpecPvMode> ParseSpecPvMode(std::string_view name);
Result<SpecPvSelector> ParseSpecPvSelector(std::string_view name);
Result<SpecPvReduce> ParseSpecPvReduce(std::string_view name);

// How many full blocks of each kind a partial row sees.
struct BlockBudget {
  int sink = 0;       // S
  int retrieval = 0;  // R
  int window = 0;     // W

  int Total() const { return sink + retrieval + window; }
  bool operator==(const BlockBudget&) const = default;
};

struct SpecPvConfig {
  // What is valid. Enough for a million tokens of context; products of sizes stay within an int.
  static constexpr Range kBlocksRange{0, 1 << 17};
  static constexpr Range kWindowRange{1, 1 << 17};  // so that a row always sees some of the prefix
  static constexpr Range kBufferRange{1, 4096};
  static constexpr Range kThresholdRange{0, 1 << 24};
  static constexpr Range kIntervalRange{1, 1 << 20};
  static constexpr Range kShareRange{0, 1};  // shadow_rate and error_target

  bool enabled = false;
  int block_size = 16;  // B; must be the KV cache's
  int sink_blocks = 2;
  int retrieval_blocks = 256;
  int window_blocks = 8;
  int buffer_tokens = 128;  // provisional tokens and the tree of a partial step fit in this
  int partial_threshold = 4096;
  int full_refresh_interval = 32;  // partial steps between full passes, at most
  SpecPvMode mode = SpecPvMode::kExact;
  SpecPvSelector selector = SpecPvSelector::kAuto;
  SpecPvReduce reduce = SpecPvReduce::kMean;
  bool adaptive = false;   // R by the request's length
  float shadow_rate = 0;   // share of partial steps that are also run in full, for measuring
  float error_target = 0;  // disagreement that the governor aims at; 0 = no governor

  int SinkTokens() const { return sink_blocks * block_size; }
  int RetrievalTokens() const { return retrieval_blocks * block_size; }
  int WindowTokens() const { return window_blocks * block_size; }
  int StaticTokens() const { return SinkTokens() + RetrievalTokens() + WindowTokens(); }
  int TotalTokens() const { return StaticTokens() + buffer_tokens; }

  // S, R and W as the selector uses them.
  BlockBudget Budget() const;
  bool RanksBlocks() const;     // the selector does
  bool NeedsSummaries() const;  // ... by key summaries; after ChooseSelector
  bool lossy() const { return enabled && mode == SpecPvMode::kFast; }
};

// A request's own settings of partial verification, where the engine has it.
struct SpecPvOverrides {
  bool off = false;                  // verify in full
  std::optional<SpecPvMode> mode;    // none of these: the engine's
  std::optional<int> budget_tokens;  // to retrieve; rounded up to blocks
  std::optional<float> error_target;

  bool ask() const { return !off && (mode || budget_tokens || error_target); }
};

// The engine's settings with a request's own. Not validated.
SpecPvConfig WithOverrides(SpecPvConfig config, const SpecPvOverrides& overrides);

// InvalidArgument names the key, its value and the valid range, in one line.
Status ValidateSpecPvConfig(const SpecPvConfig& config);

// What SpecPV must fit into.
struct SpecPvHost {
  int kv_block_size = 16;
  int max_tree_nodes = 1;           // T_max, root included
  int max_depth = 0;                // D_max: drafts on a path
  bool scores_by_attention = true;  // KvOps::ScoresByAttention
};

// Makes of kAuto what the device can.
void ChooseSelector(const SpecPvHost& host, SpecPvConfig* config);

// Why an engine cannot use SpecPV (it then verifies in full), or nothing. The buffer must leave
// room for a second partial step, else every other pass would be full.
std::optional<SpecPvFallback> SpecPvPreflight(const SpecPvConfig& config, const SpecPvHost& host);

// Runs `allocate`, which allocates what an engine with these settings needs. If there is no memory,
// turns SpecPV off with a line in the log and runs it again.
Status AllocateOrGiveUp(SpecPvConfig* config, Metrics* metrics,
                        const std::function<Status()>& allocate);

// What is known of a request at admission.
struct SpecPvRequest {
  int prompt_tokens = 0;
  int max_tokens = 0;
  int max_depth = 0;
  bool wants_logprobs = false;
};

// The request's block budget, or nothing: it is verified in full throughout. Adaptive budgets give
// very long requests fewer retrieved blocks, and requests too short to gain from SpecPV none.
std::optional<BlockBudget> SpecPvBudgetOf(const SpecPvConfig& config, const SpecPvRequest& request);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_CONFIG_H_
