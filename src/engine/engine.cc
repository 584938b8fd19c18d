#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "observe/trace.h"

namespace talon {
namespace {

void TracePhase(const ActiveRequest& run, RequestPhase phase) {
  if (Tracer* tracer = ActiveTracer()) tracer->EnterPhase(run.result.id, phase);
}

}  // namespace

Engine::Engine(Parts parts, const EngineOptions& options)
    : parts_(std::move(parts)), options_(options) {
  if (parts_.policy == nullptr) parts_.policy = std::make_unique<FixedPolicy>();
  if (parts_.metrics == nullptr) parts_.metrics = std::make_unique<Metrics>();
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(Parts parts, const EngineOptions& options) {
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

void Engine::Cancel(RequestId id) {
  const auto matches = [id](const std::unique_ptr<ActiveRequest>& run) {
    return run->result.id == id;
  };
  if (const auto at = std::find_if(waiting_.begin(), waiting_.end(), matches);
      at != waiting_.end()) {
    (*at)->result.finish = FinishReason::kCancelled;
    std::unique_ptr<ActiveRequest> run = std::move(*at);
    waiting_.erase(at);
    Retire(std::move(run));
  } else if (const auto found = std::find_if(running_.begin(), running_.end(), matches);
             found != running_.end()) {
    (*found)->result.finish = FinishReason::kCancelled;
    RetireFinished();
  }
}

// Admits in order of arrival while the pool holds the whole prompt of everyone admitted, and a
// block more for each: who is admitted should not be preempted at once.
void Engine::Admit() {
  int promised = 0;
  for (const auto& run : running_) {
    promised += kv_->BlocksNeeded(run->sequence, run->prompt_left() + 1) + 1;
  }
  while (!waiting_.empty() && num_running() < options_.max_sequences) {
    ActiveRequest* next = waiting_.front().get();
    AttachKnown(next);
    const int needed = kv_->BlocksNeeded(next->sequence, next->prompt_left() + 1) + 1;
    if (!running_.empty() && promised + needed > kv_->free_blocks()) {
      kv_->Free(&next->sequence);
      return;
    }
    promised += needed;
    if (next->scheduled_at < 0) {
      next->scheduled_at = next->request.age.Seconds();
      metrics().Observe(Histogram::kRequestQueueSeconds, next->scheduled_at);
    }
    TracePhase(*next, RequestPhase::kPrompt);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// At least the root is left to compute.
void Engine::AttachKnown(ActiveRequest* run) {
  kv_->Attach(&run->sequence, static_cast<int>(run->sequence.tokens.size()) - 1);
}

// Every decoding sequence must be able to commit at least its root.
void Engine::MakeRoomForRoots() {
  for (;;) {
    int needed = 0;
    for (const auto& run : running_) needed += kv_->BlocksNeeded(run->sequence, 1);
    if (needed <= kv_->free_blocks() || running_.size() <= 1) return;
    PreemptYoungest();
  }
}

// Its tokens stay; only K/V is given up and computed again later, to the same bits.
void Engine::PreemptYoungest() {
  std::unique_ptr<ActiveRequest> run = std::move(running_.back());
  running_.pop_back();
  step_->Suspend(run.get());
  kv_->Free(&run->sequence);
  run->started = false;
  TracePhase(*run, RequestPhase::kQueued);
  metrics().Add(Counter::kRequestPreemptions, 1);
  waiting_.push_front(std::move(run));
}

// Who has prompt tokens to compute, in order of admission. One whose next block another one is
// about to compute waits for that one's.
std::vector<ActiveRequest*> Engine::PromptsToCompute() const {
  std::vector<ActiveRequest*> prompts;
  const auto same_block_next = [&](const ActiveRequest& a, const ActiveRequest& b) {
    const int end = a.sequence.committed_len + options_.block_size;
    return a.sequence.committed_len == b.sequence.committed_len && end <= a.prompt_end() &&
           end <= b.prompt_end() &&
           std::equal(a.sequence.tokens.begin(), a.sequence.tokens.begin() + end,
                      b.sequence.tokens.begin());
  };
  for (const auto& run : running_) {
    if (run->prompt_left() <= 0) continue;
    const bool waits = options_.prefix_cache && !run->started &&
                       std::any_of(prompts.begin(), prompts.end(), [&](const ActiveRequest* other) {
                         return same_block_next(*run, *other);
                       });
    if (!waits) prompts.push_back(run.get());
  }
  return prompts;
}

// The step's prompt tokens are shared evenly, so that a short prompt does not wait for a long one;
// what the short ones leave goes to the others.
std::vector<PromptChunk> Engine::NextPromptChunks(int tree_rows) {
  std::vector<ActiveRequest*> prompts = PromptsToCompute();
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const ActiveRequest* a, const ActiveRequest* b) {
                     return a->prompt_left() < b->prompt_left();
                   });
  std::vector<PromptChunk> chunks;
  int budget = std::min(options_.prefill_chunk, parts_.target->max_rows() - tree_rows);
  int free_blocks = kv_->free_blocks();
  auto sharing = static_cast<int>(prompts.size());
  for (ActiveRequest* run : prompts) {
    const int tokens = std::min(run->prompt_left(), (budget + sharing - 1) / sharing);
    --sharing;
    const int needed = kv_->BlocksNeeded(run->sequence, tokens);
    if (tokens <= 0 || needed > free_blocks) continue;
    free_blocks -= needed;
    budget -= tokens;
    chunks.push_back({run, tokens});
  }
  return chunks;
}

void Engine::RunStep() {
  Admit();
  MakeRoomForRoots();
  std::vector<ActiveRequest*> decoding;
  std::vector<size_t> tokens_before;
  for (const auto& run : running_) {
    if (!run->started) AttachKnown(run.get());
    if (run->prompt_left() > 0) continue;
    decoding.push_back(run.get());
    tokens_before.push_back(run->result.tokens.size());
  }
  const std::vector<PromptChunk> prompts =
      NextPromptChunks(static_cast<int>(decoding.size()) * options_.TreeRowsPerSequence());
  if (decoding.empty() && prompts.empty()) return;
  for (ActiveRequest* run : decoding) {
    Start(run);
    TracePhase(*run, RequestPhase::kDecode);
  }
  for (const PromptChunk& prompt : prompts) Start(prompt.run);
  const Status status = step_->Run(decoding, prompts);
  if (!status.ok()) {
    for (const auto& run : running_) {
      run->result.finish = FinishReason::kError;
      run->result.error = status;
    }
  }
  for (size_t i = 0; i < decoding.size(); ++i) Deliver(decoding[i], tokens_before[i]);
  RetireFinished();
  ReportState();
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

void Engine::Deliver(ActiveRequest* run, size_t tokens_before) {
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
  if (run->drafter_knows) parts_.drafter->End(run->sequence.id);
  kv_->Free(&run->sequence);
  if (run->result.finish == FinishReason::kCancelled) {
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
