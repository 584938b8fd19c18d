#include "observe/metric_names.h"

namespace talon {
namespace {

constexpr double kSecondsBounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                     0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                     1,      2.5,     5,      10,    30,     60};
constexpr double kTokensBounds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
constexpr double kNodesBounds[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};
constexpr double kRatioBounds[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
constexpr double kCosineBounds[] = {0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0};
constexpr double kNatsBounds[] = {1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10};

template <typename Kind>
struct Row {
  Kind kind;
  MetricInfo info;
};

constexpr Row<Counter> kCounters[] = {
    {Counter::kGrammarTokens,
     {"grammar_tokens_total", "kind",
      "Tokens of answers that must match a grammar: forced by it, or chosen."}},
    {Counter::kInternalErrors,
     {"internal_errors_total", "",
      "Broken invariants and failed audits; their requests end with an error."}},
    {Counter::kKvBytesStaged,
     {"kv_bytes_staged_total", "kind", "Bytes written to KV staging rows, outside of blocks."}},
    {Counter::kKvBytesWritten, {"kv_bytes_written_total", "kind", "Bytes written to KV blocks."}},
    {Counter::kKvEvictions, {"kv_evictions_total", "", "Cached KV blocks evicted."}},
    {Counter::kKvPrefixDraftRowsRecomputed,
     {"kv_prefix_draft_rows_recomputed_total", "",
      "Draft rows of a prefix hit computed again because the next token differed."}},
    {Counter::kKvPrefixHitTokens,
     {"kv_prefix_hit_tokens_total", "", "Prompt tokens taken from the prefix cache."}},
    {Counter::kKvPrefixQueryTokens,
     {"kv_prefix_query_tokens_total", "", "Prompt tokens looked up in the prefix cache."}},
    {Counter::kKvRewoundTokens,
     {"kv_rewound_tokens_total", "", "Tokens removed from sequences by a rewind."}},
    {Counter::kNworBytesSaved,
     {"nwor_bytes_saved_total", "",
      "Bytes of rejected rows kept out of blocks; they were written to staging rows."}},
    {Counter::kNworFallback,
     {"nwor_fallback_total", "reason", "Trees replaced by a root that is written directly."}},
    {Counter::kNworStageOperations,
     {"nwor_stage_operations_total", "", "Rows staged, counted by each layer that reported them."}},
    {Counter::kNworStagedTokens, {"nwor_staged_tokens_total", "", "Rows staged."}},
    {Counter::kNworTokensCommitted,
     {"nwor_tokens_committed_total", "to",
      "Staged rows accepted: moved to blocks or, under a partial view, to the tail."}},
    {Counter::kNworTokensRejected, {"nwor_tokens_rejected_total", "", "Staged rows discarded."}},
    {Counter::kRemoteDesyncs,
     {"remote_desyncs_total", "code", "Calls that had to be sent again with the whole context."}},
    {Counter::kRemotePayloadBytes,
     {"remote_payload_bytes_total", "direction", "Bytes of the messages of remote calls."}},
    {Counter::kRemoteSessionEvictions,
     {"remote_session_evictions_total", "reason", "Sessions that ended."}},
    {Counter::kRemoteSpeculation,
     {"remote_speculation_total", "result",
      "Rounds drafted ahead, by whether the draft could be used."}},
    {Counter::kRequestGeneratedTokens,
     {"request_generated_tokens_total", "", "Tokens that left the engine."}},
    {Counter::kRequestPreemptions,
     {"request_preemptions_total", "", "Sequences rewound and requeued for want of KV blocks."}},
    {Counter::kRequestPromptTokens,
     {"request_prompt_tokens_total", "", "Prompt tokens of the requests taken in."}},
    {Counter::kRequests, {"requests_total", "finish_reason", "Requests that ended."}},
    {Counter::kScvChunks,
     {"scv_chunks_total", "outcome", "Chunks of trees verified in parts, run or skipped."}},
    {Counter::kSpecAcceptedAtDepth,
     {"spec_accepted_at_depth_total", "depth", "Drafts accepted at this depth of the tree."}},
    {Counter::kSpecAcceptedTokens,
     {"spec_accepted_tokens_total", "drafter", "Drafts accepted, bonus excluded."}},
    {Counter::kSpecDraftTokens,
     {"spec_draft_tokens_total", "drafter", "Tree nodes proposed, root excluded."}},
    {Counter::kSpecFallback, {"spec_fallback_total", "reason", "Trees replaced by their root."}},
    {Counter::kSpecVerifyPasses,
     {"spec_verify_passes_total", "mode", "Target passes, counted once per sequence."}},
    {Counter::kSpecPvArgmaxDisagreements,
     {"specpv_argmax_disagreements_total", "distance",
      "Checked tokens where partial and full verification disagreed."}},
    {Counter::kSpecPvCheckedTokens,
     {"specpv_checked_tokens_total", "distance",
      "Tokens of partial verification compared with a full pass."}},
    {Counter::kSpecPvConfirmedTokens,
     {"specpv_confirmed_tokens_total", "", "Provisional tokens confirmed by a full pass."}},
    {Counter::kSpecPvFallback,
     {"specpv_fallback_total", "reason", "Partial verification given up for full."}},
    {Counter::kSpecPvRefresh,
     {"specpv_refresh_total", "reason", "Full passes of partial verification, by trigger."}},
    {Counter::kSpecPvRolledBackTokens,
     {"specpv_rolled_back_tokens_total", "", "Provisional tokens undone by a full pass."}},
};

constexpr Row<Gauge> kGauges[] = {
    {Gauge::kKvBlocks, {"kv_blocks", "state", "KV blocks."}},
    {Gauge::kKvUsageRatio, {"kv_usage_ratio", "", "Used of all KV blocks."}},
    {Gauge::kNworAcceptanceRatio,
     {"nwor_acceptance_ratio", "", "Committed of all staged rows since the start."}},
    {Gauge::kRemoteDraftLength,
     {"remote_draft_length", "", "Length of the drafts asked of the draft worker."}},
    {Gauge::kRemoteSessions, {"remote_sessions", "", "Sessions kept by this worker."}},
    {Gauge::kRequestsRunning, {"requests_running", "", "Requests in the running batch."}},
    {Gauge::kRequestsWaiting, {"requests_waiting", "", "Requests in the queue."}},
    {Gauge::kSpecPvProvisionalTokens,
     {"specpv_provisional_tokens", "", "Provisional tokens waiting for a full pass."}},
};

constexpr Row<Histogram> kHistograms[] = {
    {Histogram::kExpertsTouched,
     {"experts_touched", "", "Experts that a pass reads in a sparse layer.", kNodesBounds}},
    {Histogram::kRemoteRpcSeconds,
     {"remote_rpc_seconds", "method", "Time of a remote call, by method and code.", kSecondsBounds,
      "code"}},
    {Histogram::kRequestE2eSeconds,
     {"request_e2e_seconds", "", "From a request's arrival to its last token.", kSecondsBounds}},
    {Histogram::kRequestQueueSeconds,
     {"request_queue_seconds", "", "From a request's arrival to its first step.", kSecondsBounds}},
    {Histogram::kRequestTpotSeconds,
     {"request_tpot_seconds", "", "Time per output token after the first, by request.",
      kSecondsBounds}},
    {Histogram::kRequestTtftSeconds,
     {"request_ttft_seconds", "", "From a request's arrival to its first token.", kSecondsBounds}},
    {Histogram::kSpecAcceptLength,
     {"spec_accept_length", "drafter", "Tokens emitted by a target pass, bonus included.",
      kTokensBounds}},
    {Histogram::kSpecDraftSeconds,
     {"spec_draft_seconds", "drafter", "Time to propose the trees of a step.", kSecondsBounds}},
    {Histogram::kSpecTreeNodes,
     {"spec_tree_nodes", "", "Tree nodes verified in a pass for a sequence, root included.",
      kNodesBounds}},
    {Histogram::kSpecVerifySeconds,
     {"spec_verify_seconds", "mode", "Time of the target pass of a step.", kSecondsBounds}},
    {Histogram::kSpecPvHiddenCosine,
     {"specpv_hidden_cosine", "distance",
      "Cosine of the hidden states of partial and full verification.", kCosineBounds}},
    {Histogram::kSpecPvKlNats,
     {"specpv_kl_nats", "distance", "Divergence of partial from full verification.", kNatsBounds}},
    {Histogram::kSpecPvVisibleRatio,
     {"specpv_visible_ratio", "", "Prefix tokens that a partial pass read, of all.", kRatioBounds}},
};

// A row for each enumerator, at its place.
template <typename Kind, size_t kSize>
constexpr bool InOrder(const Row<Kind> (&rows)[kSize], size_t count) {
  for (size_t i = 0; i < kSize; ++i) {
    if (rows[i].kind != static_cast<Kind>(i)) return false;
  }
  return kSize == count;
}
static_assert(InOrder(kCounters, kNumCounters));
static_assert(InOrder(kGauges, kNumGauges));
static_assert(InOrder(kHistograms, kNumHistograms));

}  // namespace

const MetricInfo& Describe(Counter counter) { return kCounters[static_cast<size_t>(counter)].info; }
const MetricInfo& Describe(Gauge gauge) { return kGauges[static_cast<size_t>(gauge)].info; }
const MetricInfo& Describe(Histogram histogram) {
  return kHistograms[static_cast<size_t>(histogram)].info;
}

}  // namespace talon
