#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "base/memory_reserve.h"
#include "engine/end_tokens.h"
#include "engine/step/late_drafter.h"
#include "observe/trace.h"

namespace talon {
namespace {

// What rules partial verification out turns it off with a line in the log.
Status CheckPartialVerification(const Engine::Parts& parts, EngineOptions* options) {
  SpecPvConfig& specpv = options->step.specpv;
  if (!specpv.enabled) return OkStatus();
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  if (!options->step.nwor) {
    return InvalidArgument("enable_specpv: needs enable_nwor, provisional rows are staged");
  }
  const SpecPvHost host{.kv_block_size = options->block_size,
                        .max_tree_nodes = options->step.budget.max_nodes,
                        .max_depth = options->step.budget.max_depth,
                        .scores_by_attention = parts.backend->kv_ops()->ScoresByAttention()};
  ChooseSelector(host, &specpv);
  if (const auto fallback = SpecPvPreflight(specpv, host)) {
    ReportSpecPvFallback(*fallback, parts.metrics.get());
    specpv.enabled = false;
  }
  return OkStatus();
}

// The cache, and the target's memory for block scores where they are needed.
Result<std::unique_ptr<KvCache>> MakeCache(const Engine::Parts& parts,
                                           const EngineOptions& options) {
  const ModelConfig& model = parts.target->config();
  const SpecPvConfig& specpv = options.step.specpv;
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = parts.target->kv_heads(),
                      .head_dim = model.head_dim,
                      .block_size = options.block_size,
                      .dtype = options.kv_dtype,
                      .num_blocks = options.BlocksOf(options.kv_tokens),
                      .staging_rows = options.MaxTreeRows(),
                      .key_summaries = specpv.enabled && specpv.NeedsSummaries()};
  TALON_ASSIGN_OR_RETURN(
      auto kv, KvCache::Create(parts.backend, shape, parts.metrics.get(),
                               {.offload = options.kv_offload,
                                .audit = options.kv_audit,
                                .tail_regions = specpv.enabled ? options.max_sequences : 0,
                                .tail_rows = specpv.enabled ? specpv.buffer_tokens : 0,
                                .view_blocks = specpv.Budget().Total() + 1,
                                .prefix_index = options.prefix_cache,
                                .ops = parts.target->kv_ops()}));
  if (specpv.enabled && specpv.RanksBlocks()) {
    const int blocks = options.BlocksOf(options.max_length);
    TALON_RETURN_IF_ERROR(parts.target->ReserveScores(options.max_sequences * blocks));
  }
  return kv;
}

}  // namespace

Engine::Engine(Parts parts, const EngineOptions& options)
    : parts_(std::move(parts)), options_(options), health_(parts_.metrics.get()) {
  if (parts_.drafter == nullptr) return;
  parts_.drafter = std::make_unique<LateDrafter>(std::move(parts_.drafter));
}

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
  TALON_RETURN_IF_ERROR(CheckPartialVerification(engine->parts_, &chosen));
  TALON_RETURN_IF_ERROR(
      AllocateOrGiveUp(&chosen.step.specpv, engine->parts_.metrics.get(), [&engine]() -> Status {
        TALON_ASSIGN_OR_RETURN(engine->kv_, MakeCache(engine->parts_, engine->options_));
        return OkStatus();
      }));
  engine->MakeParts();
  engine->ReportState();
  return engine;
}

void Engine::MakeParts() {
  step_ = std::make_unique<Step>(Step::Parts{.backend = parts_.backend,
                                             .target = parts_.target,
                                             .kv = kv_.get(),
                                             .drafter = parts_.drafter.get(),
                                             .policy = parts_.policy.get(),
                                             .metrics = parts_.metrics.get()},
                                 options_.step);
  scheduler_ = std::make_unique<Scheduler>(Scheduler::Parts{.target = parts_.target,
                                                            .kv = kv_.get(),
                                                            .step = step_.get(),
                                                            .metrics = parts_.metrics.get()},
                                           options_);
  limits_ = {.options = options_,
             .vocabulary = parts_.target->config().vocab_size,
             .kv_blocks = kv_->shape().num_blocks,
             .has_tokenizer = parts_.tokenizer != nullptr};
  if (parts_.drafter != nullptr) limits_.drafters = parts_.drafter->source_names();
}

Result<RequestId> Engine::Submit(GenerateRequest request) {
  TALON_RETURN_IF_ERROR(health());
  TALON_RETURN_IF_ERROR(Check(request));
  TALON_ASSIGN_OR_RETURN(StopMatcher stops, StopMatcher::Create(request.stop));
  const RequestId id = next_id_++;
  std::vector<int32_t> ends = EndTokens(parts_.target->config(), parts_.tokenizer);
  OutputText text(parts_.tokenizer, std::move(stops), request.prompt, request.ShownText());
  if (Tracer* tracer = ActiveTracer()) {
    tracer->BeginRequest(id, static_cast<int>(request.prompt.size()));
  }
  TALON_ASSIGN_OR_RETURN(const uint32_t sources, SourcesOf(request, limits_.drafters));
  request.speculate = request.speculate && sources != 0 && request.sampling.max_tokens > 0;
  auto run =
      std::make_unique<ActiveRequest>(id, std::move(request), std::move(ends), std::move(text));
  run->sources = sources;
  scheduler_->Add(std::move(run));
  return id;
}

void Engine::Cancel(RequestId id, FinishReason reason) {
  ActiveRequest* run = scheduler_->Find(id);
  if (run == nullptr) return;
  run->result.finish = reason;
  RetireFinished();
}

void Engine::RunStep() {
  Status failed;
  const Status broken = Contain([&] { failed = TryStep(); });
  const WaitForMemory wait;  // requests end whole, or not at all
  if (!failed.ok()) Fail(scheduler_->Running(), failed);
  if (!broken.ok()) {
    std::vector<ActiveRequest*> involved = scheduler_->Running();
    if (involved.empty()) involved = scheduler_->FirstWaiting();  // broken by its admission
    Fail(involved, broken);
    health_.StepBroke(broken, [this] { return CheckIntegrity(); });
  }
  if (!health_.ok()) Fail(scheduler_->All(), health_.status());
  ReportState();
}

Status Engine::TryStep() {
  scheduler_->Admit();
  EndDonePrompts();  // a prompt of one token, say
  const Schedule next = scheduler_->Choose();
  if (next.decoding.empty() && next.prompts.empty()) return OkStatus();
  for (ActiveRequest* run : next.decoding) Start(run);
  for (const PromptChunk& prompt : next.prompts) Start(prompt.run);
  TALON_RETURN_IF_ERROR(step_->Run(next.decoding, next.prompts));
  if (options_.kv_audit) TALON_RETURN_IF_ERROR(Audit());
  for (ActiveRequest* run : next.decoding) Deliver(run);
  EndDonePrompts();
  return OkStatus();
}

// Before anything of the step leaves the engine.
Status Engine::Audit() {
  const Status status = CheckIntegrity();
  if (!status.ok()) health_.Stop(status);
  return status;
}

void Engine::Fail(const std::vector<ActiveRequest*>& runs, const Status& why) {
  for (ActiveRequest* run : runs) {
    run->result.finish = FinishReason::kError;
    run->result.error = why;
    run->result.tokens.resize(run->delivered);
    if (run->request.on_update) {
      run->request.on_update({.id = run->result.id, .finish = run->result.finish});
    }
  }
  RetireFinished();
}

// Requests that want nothing after their prompt.
void Engine::EndDonePrompts() {
  for (ActiveRequest* run : scheduler_->Running()) {
    if (run->finished() || !run->prompt_done()) continue;
    Start(run);
    run->result.finish = FinishReason::kLength;
    Deliver(run);
  }
  RetireFinished();
}

// From now on the request has rows of its own.
void Engine::Start(ActiveRequest* run) {
  if (run->started) return;
  run->started = true;
  if (run->counted) return;  // it was preempted
  run->counted = true;
  run->result.stats.cached_tokens = run->sequence.committed_len;
  metrics().Add(Counter::kRequestPromptTokens, run->result.stats.prompt_tokens);
  if (!options_.prefix_cache) return;
  metrics().Add(Counter::kKvPrefixQueryTokens, run->result.stats.prompt_tokens);
  metrics().Add(Counter::kKvPrefixHitTokens, run->sequence.committed_len);
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
  for (auto& run : scheduler_->TakeFinished()) Retire(std::move(run));
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
  const int cached = kv_->pool().cached_blocks();
  metrics().Set(Gauge::kKvBlocks, kv_->pool().free_blocks() - cached, "free");
  metrics().Set(Gauge::kKvBlocks, cached, "cached");
  metrics().Set(Gauge::kKvBlocks, kv_->pool().used_blocks(), "used");
  metrics().Set(Gauge::kKvUsageRatio,
                static_cast<double>(kv_->pool().used_blocks()) / kv_->shape().num_blocks);
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
  for (const ActiveRequest* run : scheduler_->All()) sequences.push_back(&run->sequence);
  return sequences;
}

Status Engine::CheckIntegrity() const {
  const std::vector<const Sequence*> sequences = Sequences();
  TALON_RETURN_IF_ERROR(kv_->CheckIntegrity(sequences));
  for (const Sequence* sequence : sequences) TALON_RETURN_IF_ERROR(kv_->audit().Check(*sequence));
  return OkStatus();
}

}  // namespace talon
