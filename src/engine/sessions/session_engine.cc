#include "engine/sessions/session_engine.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "engine/prompt_shares.h"

namespace talon {

int SessionOptions::TreeRows() const {
  constexpr int kSharedRows = 1024;  // worth having for several calls, if one alone needs less
  const int tree = max_tree_nodes + 1;
  const SpecPvConfig& specpv = engine.step.specpv;
  const int one_call = tree + (specpv.enabled ? specpv.buffer_tokens : 0);
  return std::max(one_call, std::min(engine.max_sequences * tree, kSharedRows));
}

// ---- Creation ----

SessionEngine::SessionEngine(const Parts& parts, const SessionOptions& options)
    : parts_(parts), options_(options) {
  if (parts_.metrics != nullptr) return;
  own_metrics_ = std::make_unique<Metrics>();
  parts_.metrics = own_metrics_.get();
}

SessionEngine::~SessionEngine() = default;

Result<std::unique_ptr<SessionEngine>> SessionEngine::Create(const Parts& parts,
                                                             const SessionOptions& options) {
  std::unique_ptr<SessionEngine> made(new SessionEngine(parts, options));
  made->ChooseSizes();
  TALON_RETURN_IF_ERROR(made->ChoosePartialVerification());
  TALON_RETURN_IF_ERROR(made->MakeCache());
  made->step_ = std::make_unique<Step>(Step::Parts{.backend = made->parts_.backend,
                                                   .target = made->parts_.target,
                                                   .kv = made->kv_.get(),
                                                   .policy = &made->policy_,
                                                   .metrics = made->parts_.metrics},
                                       made->options_.engine.step);
  made->ReportState();
  return made;
}

void SessionEngine::ChooseSizes() {
  EngineOptions& engine = options_.engine;
  const ModelConfig& model = parts_.target->config();
  if (engine.max_length <= 0) engine.max_length = model.max_context;
  engine.max_length = std::min(engine.max_length, model.max_context);
  engine.step.max_length = engine.max_length;
  engine.step.budget = {.max_nodes = options_.max_tree_nodes + 1,
                        .max_depth = SessionOptions::kMaxTreeDepth};
  engine.step.scv_chunk_size = 0;  // a call is one step
  if (engine.kv_tokens <= 0) engine.kv_tokens = options_.max_sessions * engine.max_length;
  limits_ = {.max_tree_nodes = options_.max_tree_nodes,
             .max_tree_depth = SessionOptions::kMaxTreeDepth,
             .max_prompt_tokens = options_.max_prompt_tokens,
             .vocab_size = model.vocab_size};
}

// Trees may be larger than the buffer: those are verified in full. So the buffer must only hold the
// smallest tree and leave room for a second step.
Status SessionEngine::ChoosePartialVerification() {
  EngineOptions& engine = options_.engine;
  SpecPvConfig& specpv = engine.step.specpv;
  if (!specpv.enabled) return OkStatus();
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  if (!engine.step.nwor) {
    return InvalidArgument("enable_specpv: needs enable_nwor, provisional rows are staged");
  }
  if (specpv.mode == SpecPvMode::kExact) {
    LogWarning("specpv_mode exact: sessions are verified in full, because every answer is final");
    specpv.enabled = false;
    return OkStatus();
  }
  const SpecPvHost host{.kv_block_size = engine.block_size,
                        .kv_dtype = engine.kv_dtype,
                        .max_tree_nodes = 1,
                        .max_depth = SessionOptions::kMaxTreeDepth};
  if (const auto fallback = SpecPvPreflight(specpv, host)) {
    ReportSpecPvFallback(*fallback, parts_.metrics);
    specpv.enabled = false;
    return OkStatus();
  }
  if (!specpv.NeedsSummaries()) return OkStatus();
  const int blocks = CeilDiv(engine.max_length, engine.block_size);
  return parts_.target->ReserveScores(engine.max_sequences * blocks);
}

Status SessionEngine::MakeCache() {
  const int rows = options_.TreeRows();
  if (parts_.target->max_rows() < rows || parts_.target->max_output_rows() < rows) {
    return InvalidArgument(
        "max_tree_nodes: {} need passes of {} rows with logits, the target has {} and {}",
        options_.max_tree_nodes, rows, parts_.target->max_rows(), parts_.target->max_output_rows());
  }
  const EngineOptions& engine = options_.engine;
  const ModelConfig& model = parts_.target->config();
  const SpecPvConfig& specpv = engine.step.specpv;
  const KvShape shape{.num_layers = model.num_layers,
                      .kv_heads = model.num_kv_heads,
                      .head_dim = model.head_dim,
                      .block_size = engine.block_size,
                      .dtype = engine.kv_dtype,
                      .num_blocks = CeilDiv(engine.kv_tokens, engine.block_size),
                      .staging_rows = rows,
                      .key_summaries = specpv.enabled && specpv.NeedsSummaries()};
  TALON_ASSIGN_OR_RETURN(
      kv_, KvCache::Create(parts_.backend, shape, parts_.metrics,
                           {.offload = engine.kv_offload,
                            .audit = engine.kv_audit,
                            .tail_regions = specpv.enabled ? options_.max_sessions : 0,
                            .tail_rows = specpv.enabled ? specpv.buffer_tokens : 0,
                            .prefix_index = engine.prefix_cache}));
  return OkStatus();
}

// ---- Calls ----

SessionEngine::CallId SessionEngine::Submit(VerifyCall asked) {
  auto call = std::make_unique<Call>();
  call->id = next_call_++;
  call->answer.request_id = asked.request_id;
  call->answer.session_id = asked.session_id;
  call->asked = std::move(asked);
  waiting_.push_back(std::move(call));
  return waiting_.back()->id;
}

bool SessionEngine::Drop(CallId id) {
  const bool waited =
      std::erase_if(waiting_, [id](const auto& call) { return call->id == id; }) > 0;
  RemoveEnded();
  return waited;
}

std::vector<SessionEngine::Finished> SessionEngine::TakeFinished() {
  return std::exchange(finished_, {});
}

bool SessionEngine::EndSession(std::string_view id) {
  Session* session = id.empty() ? nullptr : sessions_.Find(id);
  if (session == nullptr) return false;
  session->ends_after = next_call_ - 1;
  RemoveEnded();
  ReportState();
  return true;
}

int SessionEngine::Collect(TimePoint now) {
  const auto is_over = [&](const Session& session) {
    return now - session.last_accessed >= options_.session_ttl && !IsBusy(session);
  };
  int collected = 0;
  while (Session* session = sessions_.Oldest(is_over)) {
    Remove(session, "ttl");
    ++collected;
  }
  if (collected > 0) ReportState();
  return collected;
}

// ---- A pass ----

void SessionEngine::RunStep(TimePoint now) {
  BeginWaiting(now);
  const Status status = RunPass();
  for (const auto& call : running_) {
    if (status.ok()) {
      Settle(call.get(), now);
    } else {
      Abandon(call.get(), status);
    }
  }
  std::erase_if(running_, [](const auto& call) { return call->run == nullptr; });
  RemoveEnded();
  ReportState();
}

Status SessionEngine::RunPass() {
  int tree_rows = 0;
  const std::vector<ActiveRequest*> trees = NextTrees(&tree_rows);
  const std::vector<PromptChunk> prompts = NextPromptChunks(tree_rows);
  if (trees.empty() && prompts.empty()) return OkStatus();
  const Stopwatch watch;
  TALON_RETURN_IF_ERROR(step_->Run(trees, prompts));
  const double seconds = watch.Seconds();
  for (const auto& call : running_) {
    const ActiveRequest* run = call->run.get();
    if (std::ranges::find(trees, run) != trees.end()) call->answer.model_seconds += seconds;
    for (const PromptChunk& prompt : prompts) {
      if (prompt.run != run) continue;
      call->answer.model_seconds += seconds;
      call->answer.rows += prompt.tokens;
    }
  }
  return OkStatus();
}

// The calls whose context is computed, in the order they began, as far as their trees fit.
std::vector<ActiveRequest*> SessionEngine::NextTrees(int* tree_rows) const {
  std::vector<ActiveRequest*> trees;
  for (const auto& call : running_) {
    ActiveRequest* run = call->run.get();
    if (call->tree_rows == 0 || run->prompt_left() > 0) continue;
    const int rows = call->tree_rows + run->sequence.tail_len;
    if (*tree_rows + rows > options_.TreeRows()) continue;
    *tree_rows += rows;
    trees.push_back(run);
  }
  return trees;
}

// Every call that runs has its blocks promised, so no prompt lacks them.
std::vector<PromptChunk> SessionEngine::NextPromptChunks(int tree_rows) const {
  std::vector<ActiveRequest*> prompts;
  for (const auto& call : running_) {
    if (call->run->prompt_left() > 0) prompts.push_back(call->run.get());
  }
  const int rows = std::min(options_.engine.prefill_chunk, parts_.target->max_rows() - tree_rows);
  return SharePromptRows(std::move(prompts), rows, *kv_);
}

// After a pass: answers the call if it is done.
void SessionEngine::Settle(Call* call, TimePoint now) {
  const ActiveRequest& run = *call->run;
  if (run.prompt_left() > 0) return;
  if (call->tree_rows == 0) {
    Answer(call, now);
  } else if (run.result.finish == FinishReason::kDeadEnd) {
    Abandon(call, Internal("no token has a probability"));
  } else if (run.result.finish == FinishReason::kError) {
    Abandon(call, run.result.error);
  } else if (!run.result.tokens.empty()) {
    Answer(call, now);
  } else if (run.plain_next && call->failed_steps++ > 0) {
    Abandon(call, Internal("the step cannot be committed"));
  }
}

void SessionEngine::Answer(Call* call, TimePoint now) {
  ActiveRequest& run = *call->run;
  VerifyAnswer& answer = call->answer;
  for (const EmittedToken& token : run.result.tokens) {
    if (token.drafted) {
      answer.accepted.push_back(token.token);
    } else {
      answer.correction = token.token;
    }
  }
  metrics().Add(Counter::kRequestGeneratedTokens, static_cast<int64_t>(run.result.tokens.size()));
  answer.finished = run.result.finish == FinishReason::kStop;
  answer.rows += static_cast<int>(run.result.stats.rows);
  Session* session = call->session;
  session->tokens = std::move(call->context);
  session->tokens.insert(session->tokens.end(), answer.accepted.begin(), answer.accepted.end());
  answer.prefix_length = static_cast<int>(session->tokens.size());
  session->sequence = std::move(run.sequence);
  session->sequence.tokens = session->tokens;
  session->partial = std::move(run.partial);
  if (call->own == nullptr) {
    session->last_request = call->asked.request_id;
    session->last_answer = answer;
    sessions_.Touch(session, now);
  }
  End(call, answer);
}

// A broken invariant: the session's state cannot be trusted any more.
void SessionEngine::Abandon(Call* call, const Status& why) {
  call->session->sequence = std::move(call->run->sequence);
  if (call->own == nullptr) Remove(std::exchange(call->session, nullptr), "end");
  End(call, Internal("INVARIANT: {}", why.message()));
}

// The call is over, and what was its own goes with it.
void SessionEngine::End(Call* call, Result<VerifyAnswer> answer) {
  call->run.reset();
  if (call->own != nullptr) kv_->Free(&call->own->sequence);
  finished_.push_back({call->id, std::move(answer)});
}

// ---- State ----

void SessionEngine::ReportState() {
  const int cached = kv_->cached_blocks();
  metrics().Set(Gauge::kKvBlocks, kv_->free_blocks() - cached, "free");
  metrics().Set(Gauge::kKvBlocks, cached, "cached");
  metrics().Set(Gauge::kKvBlocks, kv_->used_blocks(), "used");
  metrics().Set(Gauge::kKvUsageRatio,
                static_cast<double>(kv_->used_blocks()) / kv_->shape().num_blocks);
  metrics().Set(Gauge::kRemoteSessions, sessions_.size());
  metrics().Set(Gauge::kRequestsRunning, static_cast<double>(running_.size()));
  metrics().Set(Gauge::kRequestsWaiting, static_cast<double>(waiting_.size()));
}

Status SessionEngine::CheckIntegrity() const {
  std::vector<const Sequence*> sequences;
  for (const auto& session : sessions_.all()) sequences.push_back(&session->sequence);
  for (const auto& call : running_) sequences.push_back(&call->run->sequence);
  TALON_RETURN_IF_ERROR(kv_->CheckIntegrity(sequences));
  for (const Sequence* sequence : sequences) TALON_RETURN_IF_ERROR(kv_->CheckAudit(*sequence));
  return OkStatus();
}

}  // namespace talon
