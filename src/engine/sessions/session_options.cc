#include "engine/sessions/session_options.h"

#include <algorithm>

#include "base/log.h"
#include "base/math.h"

namespace talon {
namespace {

void ChooseSizes(const ModelConfig& model, SessionOptions* options) {
  EngineOptions& engine = options->engine;
  if (engine.max_length <= 0) engine.max_length = model.max_context;
  engine.max_length = std::min(engine.max_length, model.max_context);
  engine.step.max_length = engine.max_length;
  engine.step.budget = {.max_nodes = options->max_tree_nodes + 1,
                        .max_depth = SessionOptions::kMaxTreeDepth};
  engine.step.scv_chunk_size = 0;  // a call is one step
  if (engine.kv_tokens <= 0) engine.kv_tokens = options->max_sessions * engine.max_length;
}

// Trees may be larger than the buffer: those are verified in full. So the buffer must only hold the
// smallest tree and leave room for a second step.
Status ChoosePartialVerification(Backend* backend, Metrics* metrics, EngineOptions* engine) {
  SpecPvConfig& specpv = engine->step.specpv;
  if (!specpv.enabled) return OkStatus();
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  if (!engine->step.nwor) {
    return InvalidArgument("enable_specpv: needs enable_nwor, provisional rows are staged");
  }
  if (specpv.mode == SpecPvMode::kExact) {
    LogWarning("specpv_mode exact: sessions are verified in full, because every answer is final");
    specpv.enabled = false;
    return OkStatus();
  }
  const SpecPvHost host{.kv_block_size = engine->block_size,
                        .max_tree_nodes = 1,
                        .max_depth = SessionOptions::kMaxTreeDepth,
                        .scores_by_attention = backend->kv_ops()->ScoresByAttention()};
  ChooseSelector(host, &specpv);
  if (const auto fallback = SpecPvPreflight(specpv, host)) {
    ReportSpecPvFallback(*fallback, metrics);
    specpv.enabled = false;
  }
  return OkStatus();
}

// The cache, and the target's memory for block scores where they are needed.
Result<std::unique_ptr<KvCache>> AllocateCache(const SessionOptions& options, Decoder* target,
                                               Backend* backend, Metrics* metrics) {
  const EngineOptions& engine = options.engine;
  const ModelConfig& model = target->config();
  const SpecPvConfig& specpv = engine.step.specpv;
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = target->kv_heads(),
                      .head_dim = model.head_dim,
                      .block_size = engine.block_size,
                      .dtype = engine.kv_dtype,
                      .num_blocks = CeilDiv(engine.kv_tokens, engine.block_size),
                      .staging_rows = options.TreeRows(),
                      .key_summaries = specpv.enabled && specpv.NeedsSummaries()};
  TALON_ASSIGN_OR_RETURN(auto kv,
                         KvCache::Create(backend, shape, metrics,
                                         {.offload = engine.kv_offload,
                                          .audit = engine.kv_audit,
                                          .tail_regions = specpv.enabled ? options.max_sessions : 0,
                                          .tail_rows = specpv.enabled ? specpv.buffer_tokens : 0,
                                          .prefix_index = engine.prefix_cache,
                                          .ops = target->kv_ops()}));
  if (specpv.enabled && specpv.RanksBlocks()) {
    const int blocks = CeilDiv(engine.max_length, engine.block_size);
    TALON_RETURN_IF_ERROR(target->ReserveScores(engine.max_sequences * blocks));
  }
  return kv;
}

}  // namespace

int SessionOptions::TreeRows() const {
  constexpr int kSharedRows = 1024;  // worth having for several calls, if one alone needs less
  const int tree = max_tree_nodes + 1;
  const SpecPvConfig& specpv = engine.step.specpv;
  const int one_call = tree + (specpv.enabled ? specpv.buffer_tokens : 0);
  return std::max(one_call, std::min(engine.max_sequences * tree, kSharedRows));
}

Status FitSessionOptions(const ModelConfig& model, Backend* backend, Metrics* metrics,
                         SessionOptions* options) {
  ChooseSizes(model, options);
  return ChoosePartialVerification(backend, metrics, &options->engine);
}

Result<std::unique_ptr<KvCache>> MakeSessionCache(Decoder* target, Backend* backend,
                                                  Metrics* metrics, SessionOptions* options) {
  const int rows = options->TreeRows();
  if (target->max_rows() < rows || target->max_output_rows() < rows) {
    return InvalidArgument(
        "max_tree_nodes: {} need passes of {} rows with logits, the target has {} and {}",
        options->max_tree_nodes, rows, target->max_rows(), target->max_output_rows());
  }
  std::unique_ptr<KvCache> kv;
  TALON_RETURN_IF_ERROR(AllocateOrGiveUp(&options->engine.step.specpv, metrics, [&]() -> Status {
    TALON_ASSIGN_OR_RETURN(kv, AllocateCache(*options, target, backend, metrics));
    return OkStatus();
  }));
  return kv;
}

}  // namespace talon
