#include "engine/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "base/math.h"
#include "engine/end_tokens.h"
#include "observe/trace.h"
#include "spec/drafter_list.h"

namespace talon {

Engine::Engine(Parts parts, const EngineOptions& options)
    : parts_(std::move(parts)), options_(options), health_(parts_.metrics.get()) {}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(Parts parts, const EngineOptions& options) {
  if (parts.policy == nullptr) parts.policy = std::make_unique<FixedPolicy>();
  if (parts.metrics == nullptr) parts.metrics = std::make_unique<Metrics>();
  std::unique_ptr<Engine> engine(new Engine(std::move(parts), options));
  EngineOptions& chosen = engine->options_;
  const ModelConfig& model = engine->parts_.target->config();
  if (chosen.max_length <= 0) chosen.max_length = model.max_context;
  chosen.max_length = std::min(chosen.max_length, model.max_context);
  chosen.step.max_length = chosen.max_length;
  if (chosen.kv_tokens <= 0) {
    chosen.kv_tokens = chosen.max_sequences * chosen.PoolTokens(chosen.max_length);
  }
  TALON_RETURN_IF_ERROR(engine->CheckPartialVerification());
  TALON_RETURN_IF_ERROR(AllocateOrGiveUp(&chosen.step.specpv, engine->parts_.metrics.get(),
                                         [&engine] { return engine->AllocateCache(); }));
  engine->step_ = std::make_unique<Step>(Step::Parts{.backend = engine->parts_.backend,
                                                     .target = engine->parts_.target,
                                                     .kv = engine->kv_.get(),
                                                     .drafter = engine->parts_.drafter.get(),
                                                     .policy = engine->parts_.policy.get(),
                                                     .metrics = engine->parts_.metrics.get()},
                                         chosen.step);
  return engine;
}

// What rules partial verification out turns it off with a line in the log.
Status Engine::CheckPartialVerification() {
  SpecPvConfig& specpv = options_.step.specpv;
  if (!specpv.enabled) return OkStatus();
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  if (!options_.step.nwor) {
    return InvalidArgument("enable_specpv: needs enable_nwor, provisional rows are staged");
  }
  const SpecPvHost host{.kv_block_size = options_.block_size,
                        .max_tree_nodes = options_.step.budget.max_nodes,
                        .max_depth = options_.step.budget.max_depth,
                        .scores_by_attention = parts_.backend->kv_ops()->ScoresByAttention()};
  if (const auto fallback = SpecPvPreflight(specpv, host)) {
    ReportSpecPvFallback(*fallback, parts_.metrics.get());
    specpv.enabled = false;
  }
  return OkStatus();
}

Status Engine::AllocateCache() {
  const ModelConfig& model = parts_.target->config();
  const SpecPvConfig& specpv = options_.step.specpv;
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = parts_.target->kv_heads(),
                      .head_dim = model.head_dim,
                      .block_size = options_.block_size,
                      .dtype = options_.kv_dtype,
                      .num_blocks = BlocksOf(options_.kv_tokens),
                      .staging_rows = options_.MaxTreeRows(),
                      .key_summaries = specpv.enabled && specpv.NeedsSummaries()};
  kv_.reset();
  TALON_ASSIGN_OR_RETURN(
      kv_, KvCache::Create(parts_.backend, shape, parts_.metrics.get(),
                           {.offload = options_.kv_offload,
                            .audit = options_.kv_audit,
                            .tail_regions = specpv.enabled ? options_.max_sequences : 0,
                            .tail_rows = specpv.enabled ? specpv.buffer_tokens : 0,
                            .view_blocks = specpv.Budget().Total() + 1,
                            .prefix_index = options_.prefix_cache,
                            .ops = parts_.target->kv_ops()}));
  if (!specpv.enabled || !specpv.RanksBlocks()) return OkStatus();
  return parts_.target->ReserveScores(options_.max_sequences * BlocksOf(options_.max_length));
}

int Engine::BlocksOf(int tokens) const { return CeilDiv(tokens, options_.block_size); }

Status Engine::Check(const GenerateRequest& request) const {
  const int vocabulary = parts_.target->config().vocab_size;
  if (request.prompt.empty()) return InvalidArgument("prompt: no tokens");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t token = request.prompt[i];
    if (token < 0 || token >= vocabulary) {
      return InvalidArgument("prompt: token {} at {}, vocabulary {}", token, i, vocabulary);
    }
  }
  TALON_RETURN_IF_ERROR(request.sampling.Validate(vocabulary));
  TALON_RETURN_IF_ERROR(CheckPromptOutputs(request));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt + std::min(request.sampling.max_tokens, 1) > options_.max_length) {
    return InvalidArgument("prompt: {} tokens, the context holds {}{}", prompt, options_.max_length,
                           request.sampling.max_tokens > 0 ? " and one must be left" : "");
  }
  const auto longest = static_cast<int>(
      std::min<int64_t>(prompt + request.sampling.max_tokens, options_.max_length));
  if (BlocksOf(longest) > kv_->shape().num_blocks) {
    return ResourceExhausted("kv: {} tokens need {} blocks, the pool has {}", longest,
                             BlocksOf(longest), kv_->shape().num_blocks);
  }
  const bool random_accept = options_.step.accept != AcceptMode::kMatch;
  if (request.sampling.logprobs >= 0 && request.sampling.temperature > 0 && random_accept) {
    return InvalidArgument("logprobs: only with acceptance 'match'");
  }
  TALON_RETURN_IF_ERROR(CheckSpecPv(request.specpv));
  TALON_RETURN_IF_ERROR(SourcesOf(request).status());
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return InvalidArgument("stop: the model has no tokenizer");
  }
  return StopMatcher::Create(request.stop).status();
}

Status Engine::CheckPromptOutputs(const GenerateRequest& request) const {
  const PromptOutputs& wanted = request.prompt_outputs;
  TALON_RETURN_IF_ERROR(
      CheckRange("prompt_logprobs", wanted.logprobs, SamplingParams::kLogProbsRange));
  if (wanted.pooling != Pooling::kNone && request.sampling.max_tokens > 0) {
    return InvalidArgument("max_tokens: {}, must be 0 where the prompt becomes a vector",
                           request.sampling.max_tokens);
  }
  return OkStatus();
}

Status Engine::CheckSpecPv(const SpecPvOverrides& wanted) const {
  const SpecPvConfig& specpv = options_.step.specpv;
  if (!wanted.ask()) return OkStatus();
  if (!specpv.enabled) {
    return InvalidArgument("specpv: the engine runs without it (enable_specpv)");
  }
  const SpecPvConfig config = WithOverrides(specpv, wanted);
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(config));
  if (options_.kv_offload && config.retrieval_blocks > specpv.retrieval_blocks) {
    return InvalidArgument("specpv: {} blocks, the copies on the device hold {}",
                           config.retrieval_blocks, specpv.retrieval_blocks);
  }
  return OkStatus();
}

// The drafters that the request names, as bits of DraftRequest::sources; 0: none.
Result<uint32_t> Engine::SourcesOf(const GenerateRequest& request) const {
  if (request.drafter.empty()) return DraftRequest::kAllSources;
  std::vector<std::string_view> known;
  if (parts_.drafter != nullptr) known = parts_.drafter->source_names();
  TALON_ASSIGN_OR_RETURN(const DrafterList wanted, DrafterList::Parse(request.drafter));
  uint32_t sources = 0;
  for (const DrafterKind kind : wanted.kinds()) {
    const auto at = std::ranges::find(known, std::string_view(DrafterKindName(kind)));
    if (at == known.end()) {
      return InvalidArgument("drafter: '{}', this engine has {}", DrafterKindName(kind),
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
    sources |= uint32_t{1} << (at - known.begin());
  }
  return sources;
}

Result<RequestId> Engine::Submit(GenerateRequest request) {
  TALON_RETURN_IF_ERROR(health());
  TALON_RETURN_IF_ERROR(Check(request));
  TALON_ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::Create(request.stop));
  const RequestId id = next_id_++;
  std::vector<int32_t> ends = EndTokens(parts_.target->config(), parts_.tokenizer);
  OutputText text(parts_.tokenizer, std::move(stops), request.prompt, request.text);
  if (Tracer* tracer = ActiveTracer()) {
    tracer->BeginRequest(id, static_cast<int>(request.prompt.size()));
  }
  TALON_ASSIGN_OR_RETURN(const uint32_t sources, SourcesOf(request));
  request.speculate = request.speculate && sources != 0 && request.sampling.max_tokens > 0;
  waiting_.push_back(
      std::make_unique<ActiveRequest>(id, std::move(request), std::move(ends), std::move(text)));
  waiting_.back()->sources = sources;
  return id;
}

void Engine::Cancel(RequestId id, FinishReason reason) {
  const auto matches = [id](const std::unique_ptr<ActiveRequest>& run) {
    return run->result.id == id;
  };
  if (const auto at = std::find_if(waiting_.begin(), waiting_.end(), matches);
      at != waiting_.end()) {
    (*at)->result.finish = reason;
    std::unique_ptr<ActiveRequest> run = std::move(*at);
    waiting_.erase(at);
    Retire(std::move(run));
  } else if (const auto found = std::find_if(running_.begin(), running_.end(), matches);
             found != running_.end()) {
    (*found)->result.finish = reason;
    RetireFinished();
  }
}

void Engine::Deliver(ActiveRequest* run) {
  const size_t tokens_before = std::exchange(run->delivered, run->result.tokens.size());
  if (run->finished()) run->text.Finish();
  RequestUpdate update{
      .id = run->result.id, .text = run->text.TakeText(), .finish = run->result.finish};
  run->result.text += update.text;
  if (run->result.tokens.size() > tokens_before) {
    run->last_token_at = run->request.age.Seconds();
    if (double& first = run->result.stats.first_token_seconds; first < 0) {
      first = run->last_token_at;
      metrics().Observe(Histogram::kRequestTtftSeconds, first);
    }
    metrics().Add(Counter::kRequestGeneratedTokens,
                  static_cast<int64_t>(run->result.tokens.size() - tokens_before));
  }
  if (!run->request.on_update) return;
  if (run->request.watched) {
    update.tree = std::exchange(run->verified, std::nullopt);
    update.stats = run->result.stats;
  }
  if (tokens_before == 0) update.prompt = run->result.prompt;
  update.tokens.assign(run->result.tokens.begin() + static_cast<int64_t>(tokens_before),
                       run->result.tokens.end());
  if (!update.tokens.empty() || run->finished()) run->request.on_update(update);
}

void Engine::RetireFinished() {
  std::vector<std::unique_ptr<ActiveRequest>> going;
  for (auto& run : running_) {
    if (run->finished()) going.push_back(std::move(run));
  }
  std::erase(running_, nullptr);
  for (auto& run : going) Retire(std::move(run));
}

void Engine::Retire(std::unique_ptr<ActiveRequest> run) {
  const Status freed = Contain([&] {
    if (run->drafter_knows) parts_.drafter->End(run->sequence.id);
    kv_->Free(&run->sequence);
  });
  if (!freed.ok()) health_.Stop(freed);
  if (run->result.finish == FinishReason::kCancelled ||
      run->result.finish == FinishReason::kTimeout) {
    run->text.Finish();
    run->result.text += run->text.TakeText();
  }
  const char* reason = FinishReasonName(run->result.finish);
  if (Tracer* tracer = ActiveTracer()) {
    tracer->EndRequest(run->result.id, reason, static_cast<int>(run->result.tokens.size()));
  }
  metrics().Add(Counter::kRequests, 1, reason);
  const RequestStats& stats = run->result.stats;
  const std::string& label = run->request.label;
  LogEvent(LogLevel::kInfo, "request finished",
           {label.empty() ? LogField("id", run->result.id) : LogField("id", label),
            {"reason", reason},
            {"prompt_tokens", stats.prompt_tokens},
            {"cached_tokens", stats.cached_tokens},
            {"tokens", run->result.tokens.size()},
            {"tau", stats.tau()},
            {"seconds", run->request.age.Seconds()}});
  const auto tokens = static_cast<double>(run->result.tokens.size());
  if (tokens > 0) metrics().Observe(Histogram::kRequestE2eSeconds, run->last_token_at);
  if (tokens > 1) {
    metrics().Observe(Histogram::kRequestTpotSeconds,
                      (run->last_token_at - stats.first_token_seconds) / (tokens - 1));
  }
  finished_[run->result.id] = std::move(run->result);
}

void Engine::ReportState() {
  metrics().Set(Gauge::kRequestsRunning, num_running());
  metrics().Set(Gauge::kRequestsWaiting, num_waiting());
  const int cached = kv_->cached_blocks();
  metrics().Set(Gauge::kKvBlocks, kv_->free_blocks() - cached, "free");
  metrics().Set(Gauge::kKvBlocks, cached, "cached");
  metrics().Set(Gauge::kKvBlocks, kv_->used_blocks(), "used");
  metrics().Set(Gauge::kKvUsageRatio,
                static_cast<double>(kv_->used_blocks()) / kv_->shape().num_blocks);
}

Result<GenerateResult> Engine::Take(RequestId id) {
  const auto at = finished_.find(id);
  if (at == finished_.end()) return NotFound("request {} is not finished or unknown", id);
  GenerateResult result = std::move(at->second);
  finished_.erase(at);
  return result;
}

Result<GenerateResult> Engine::Generate(GenerateRequest request) {
  TALON_ASSIGN_OR_RETURN(const RequestId id, Submit(std::move(request)));
  while (finished_.count(id) == 0) RunStep();
  return Take(id);
}

std::vector<const Sequence*> Engine::Sequences() const {
  std::vector<const Sequence*> sequences;
  for (const auto& run : running_) sequences.push_back(&run->sequence);
  for (const auto& run : waiting_) sequences.push_back(&run->sequence);
  return sequences;
}

Status Engine::CheckIntegrity() const {
  const std::vector<const Sequence*> sequences = Sequences();
  TALON_RETURN_IF_ERROR(kv_->CheckIntegrity(sequences));
  for (const Sequence* sequence : sequences) TALON_RETURN_IF_ERROR(kv_->CheckAudit(*sequence));
  return OkStatus();
}

}  // namespace talon
