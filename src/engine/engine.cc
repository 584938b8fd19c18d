#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "observe/trace.h"

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
  if (chosen.kv_tokens <= 0) chosen.kv_tokens = chosen.max_sequences * chosen.max_length;
  SpecPvConfig& specpv = chosen.step.specpv;
  TALON_RETURN_IF_ERROR(engine->CheckPartialVerification());
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = model.num_kv_heads,
                      .head_dim = model.head_dim,
                      .block_size = chosen.block_size,
                      .dtype = chosen.kv_dtype,
                      .num_blocks = engine->BlocksOf(chosen.kv_tokens),
                      .staging_rows = chosen.MaxTreeRows(),
                      .key_summaries = specpv.enabled && specpv.NeedsSummaries()};
  TALON_ASSIGN_OR_RETURN(
      engine->kv_, KvCache::Create(engine->parts_.backend, shape, engine->parts_.metrics.get(),
                                   {.offload = chosen.kv_offload,
                                    .audit = chosen.kv_audit,
                                    .tail_regions = specpv.enabled ? chosen.max_sequences : 0,
                                    .tail_rows = specpv.enabled ? specpv.buffer_tokens : 0,
                                    .view_blocks = specpv.Budget().Total() + 1,
                                    .prefix_index = chosen.prefix_cache}));
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
                        .kv_dtype = options_.kv_dtype,
                        .max_tree_nodes = options_.step.budget.max_nodes,
                        .max_depth = options_.step.budget.max_depth};
  if (const auto fallback = SpecPvPreflight(specpv, host)) {
    ReportSpecPvFallback(*fallback, parts_.metrics.get());
    specpv.enabled = false;
    return OkStatus();
  }
  if (!specpv.NeedsSummaries()) return OkStatus();
  return parts_.target->ReserveScores(options_.max_sequences * BlocksOf(options_.max_length));
}

int Engine::BlocksOf(int tokens) const {
  return (tokens + options_.block_size - 1) / options_.block_size;
}

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
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt >= options_.max_length) {
    return InvalidArgument("prompt: {} tokens, the context holds {} and one must be left", prompt,
                           options_.max_length);
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
  const SpecPvConfig& specpv = options_.step.specpv;
  if (specpv.enabled && request.specpv.retrieval_blocks >= 0) {
    SpecPvConfig wanted = specpv;
    wanted.retrieval_blocks = request.specpv.retrieval_blocks;
    TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(wanted));
  }
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return InvalidArgument("stop: the model has no tokenizer");
  }
  return StopMatcher::Create(request.stop).status();
}

Result<RequestId> Engine::Submit(GenerateRequest request) {
  TALON_RETURN_IF_ERROR(health());
  TALON_RETURN_IF_ERROR(Check(request));
  TALON_ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::Create(request.stop));
  const RequestId id = next_id_++;
  const std::vector<int> eos = parts_.target->config().eos_token_ids;
  OutputText text(parts_.tokenizer, std::move(stops));
  if (Tracer* tracer = ActiveTracer()) {
    tracer->BeginRequest(id, static_cast<int>(request.prompt.size()));
  }
  waiting_.push_back(std::make_unique<ActiveRequest>(
      id, std::move(request), std::vector<int32_t>(eos.begin(), eos.end()), std::move(text)));
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
    if (run->first_token_at < 0) {
      run->first_token_at = run->last_token_at;
      metrics().Observe(Histogram::kRequestTtftSeconds, run->first_token_at);
    }
    metrics().Add(Counter::kRequestGeneratedTokens,
                  static_cast<int64_t>(run->result.tokens.size() - tokens_before));
  }
  if (!run->request.on_update) return;
  if (run->request.watched) {
    update.tree = std::exchange(run->verified, std::nullopt);
    update.stats = run->result.stats;
  }
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
  LogEvent(LogLevel::kInfo, "request finished",
           {{"id", run->result.id},
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
                      (run->last_token_at - run->first_token_at) / (tokens - 1));
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
