// The metrics there are: one sorted list per kind, each with its name, label and help.
#ifndef TALON_OBSERVE_METRIC_NAMES_H_
#define TALON_OBSERVE_METRIC_NAMES_H_

#include <cstddef>
#include <span>

namespace talon {

enum class Counter {
  kGrammarTokens,  // kind: forced, chosen; of answers that must match a grammar
  kInternalErrors,
  kKvBytesStaged,   // kind: pass, tail, shadow; to staging rows
  kKvBytesWritten,  // kind: prefill, commit, tree, copy; to blocks
  kKvEvictions,
  kKvPrefixDraftRowsRecomputed,
  kKvPrefixHitTokens,
  kKvPrefixQueryTokens,
  kKvRewoundTokens,
  kNworBytesSaved,
  kNworFallback,         // reason
  kNworStageOperations,  // (row, layer) pairs
  kNworStagedTokens,     // distinct rows
  kNworTokensCommitted,  // to: blocks, tail
  kNworTokensRejected,
  kRemoteDesyncs,              // code: why a client had to send its whole context again
  kRemotePayloadBytes,         // direction: sent, received
  kRemoteSessionEvictions,     // reason: ttl, lru, end
  kRemoteSpeculation,          // result: hit, miss, skipped
  kRequestGeneratedTokens,     // tokens that left the engine
  kRequestPreemptions,         // sequences rewound and requeued for want of blocks
  kRequestPromptTokens,        // sum over all requests, cached tokens included
  kRequests,                   // finish_reason
  kScvChunks,                  // outcome: run, skipped
  kSpecAcceptedAtDepth,        // depth 1..16
  kSpecAcceptedTokens,         // drafter
  kSpecDraftTokens,            // drafter
  kSpecFallback,               // reason
  kSpecVerifyPasses,           // mode: full, partial, plain
  kSpecPvArgmaxDisagreements,  // distance; of the checked tokens
  kSpecPvCheckedTokens,        // distance; provisional tokens compared with a full pass
  kSpecPvConfirmedTokens,      // provisional tokens that a full pass drew too
  kSpecPvFallback,             // reason
  kSpecPvRefresh,              // reason
  kSpecPvRolledBackTokens,
};
inline constexpr size_t kNumCounters = static_cast<size_t>(Counter::kSpecPvRolledBackTokens) + 1;

enum class Gauge {
  kKvBlocks,             // state: free, used, cached
  kKvUsageRatio,         // used / all blocks
  kNworAcceptanceRatio,  // committed / staged rows since the start
  kRemoteDraftLength,    // drafts asked for, by draft length control
  kRemoteSessions,       // sessions that a worker keeps
  kRequestsRunning,
  kRequestsWaiting,
  kSpecPvProvisionalTokens,  // now waiting for a full pass, of all sequences
};
inline constexpr size_t kNumGauges = static_cast<size_t>(Gauge::kSpecPvProvisionalTokens) + 1;

enum class Histogram {
  kExpertsTouched,       // experts that a pass reads in a sparse layer, mean of the layers
  kRemoteRpcSeconds,     // method, and code: "VerifyDrafts", "ok"
  kRequestE2eSeconds,    // arrival to last token
  kRequestQueueSeconds,  // arrival to first scheduled
  kRequestTpotSeconds,   // (last - first token time) / (tokens - 1), per request
  kRequestTtftSeconds,   // arrival to first token sent
  kSpecAcceptLength,     // drafter; tokens emitted by a target pass, bonus included
  kSpecDraftSeconds,     // drafter; Propose of a step
  kSpecTreeNodes,        // rows that a pass verifies for a sequence, root included
  kSpecVerifySeconds,    // mode; Verify of a step
  kSpecPvHiddenCosine,   // distance; full against partial, shadow steps only
  kSpecPvKlNats,         // distance; KL(full || partial), shadow steps only
  kSpecPvVisibleRatio,   // visible prefix tokens / C, of partial passes
};
inline constexpr size_t kNumHistograms = static_cast<size_t>(Histogram::kSpecPvVisibleRatio) + 1;

struct MetricInfo {
  const char* name = "";   // without "talon_"
  const char* label = "";  // the label's key; empty: none
  const char* help = "";
  // Histograms: upper ends of the buckets, ascending; one more bucket takes what is above the last.
  std::span<const double> bounds = {};
  const char* second_label = "";  // second label of a histogram; empty: none
};

const MetricInfo& Describe(Counter counter);
const MetricInfo& Describe(Gauge gauge);
const MetricInfo& Describe(Histogram histogram);

inline const char* CounterName(Counter counter) { return Describe(counter).name; }
inline const char* GaugeName(Gauge gauge) { return Describe(gauge).name; }
inline const char* HistogramName(Histogram histogram) { return Describe(histogram).name; }
inline std::span<const double> BucketBounds(Histogram histogram) {
  return Describe(histogram).bounds;
}

}  // namespace talon

#endif  // TALON_OBSERVE_METRIC_NAMES_H_
