#include "engine/sessions/session_engine.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/contain.h"
#include "engine/schedule/prompt_shares.h"

namespace talon {

// ---- Creation ----

SessionEngine::SessionEngine(const Parts& parts, std::unique_ptr<Metrics> own_metrics,
                             const SessionOptions& options, std::unique_ptr<KvCache> kv)
    : parts_(parts),
      own_metrics_(std::move(own_metrics)),
      options_(options),
      limits_{.max_tree_nodes = options_.max_tree_nodes,
              .max_tree_depth = SessionOptions::kMaxTreeDepth,
              .max_prompt_tokens = options_.max_prompt_tokens,
              .vocab_size = parts_.target->config().vocab_size},
      kv_(std::move(kv)),
      step_({.backend = parts_.backend,
             .target = parts_.target,
             .kv = kv_.get(),
             .policy = &policy_,
             .metrics = parts_.metrics},
            options_.engine.step),
      evictor_(
          {.sessions = &sessions_, .calls = &calls_, .kv = kv_.get(), .metrics = parts_.metrics}),
      starter_({.options = &options_,
                .calls = &calls_,
                .sessions = &sessions_,
                .evictor = &evictor_,
                .kv = kv_.get(),
                .metrics = parts_.metrics}),
      health_(parts_.metrics) {
  ReportState();
}

SessionEngine::~SessionEngine() = default;

Result<std::unique_ptr<SessionEngine>> SessionEngine::Create(const Parts& given,
                                                             const SessionOptions& asked) {
  Parts parts = given;
  SessionOptions options = asked;
  std::unique_ptr<Metrics> own_metrics;
  if (parts.metrics == nullptr) {
    own_metrics = std::make_unique<Metrics>();
    parts.metrics = own_metrics.get();
  }
  TALON_RETURN_IF_ERROR(
      FitSessionOptions(parts.target->config(), parts.backend, parts.metrics, &options));
  TALON_ASSIGN_OR_RETURN(auto kv,
                         MakeSessionCache(parts.target, parts.backend, parts.metrics, &options));
  return std::unique_ptr<SessionEngine>(
      new SessionEngine(parts, std::move(own_metrics), options, std::move(kv)));
}

// ---- Calls ----

Result<std::shared_ptr<Matcher>> SessionEngine::CompileGrammar(const VerifyCall& call) const {
  if (call.grammar.kind == GrammarSpec::Kind::kNone) return std::shared_ptr<Matcher>();
  if (parts_.grammars == nullptr) {
    return InvalidArgument("BAD_GRAMMAR: the target worker's model has no tokenizer");
  }
  auto matcher = parts_.grammars->Compile(call.grammar);
  if (!matcher.ok()) return matcher.status().WithContext("BAD_GRAMMAR");
  return matcher;
}

SessionEngine::CallId SessionEngine::Submit(VerifyCall asked, std::shared_ptr<Matcher> grammar) {
  return calls_.Add(std::move(asked), std::move(grammar));
}

bool SessionEngine::Drop(CallId id) {
  const bool waited = calls_.Drop(id);
  RemoveEnded();
  return waited;
}

std::vector<SessionEngine::Finished> SessionEngine::TakeFinished() {
  return std::exchange(finished_, {});
}

bool SessionEngine::EndSession(std::string_view id) {
  Session* session = id.empty() ? nullptr : sessions_.Find(id);
  if (session == nullptr) return false;
  session->ends_after = calls_.last_id();
  RemoveEnded();
  ReportState();
  return true;
}

int SessionEngine::Collect(TimePoint now) {
  int collected = 0;
  if (!health_.ok()) return 0;
  health_.StopIfBroken([&] { collected = evictor_.Collect(now, options_.session_ttl); });
  if (collected > 0) ReportState();
  return collected;
}

// ---- Beginning ----

// Begins calls in order of arrival, except those whose session is busy with an earlier one. A call
// that finds no room waits for the running ones, and so do all calls behind it.
void SessionEngine::BeginWaiting(TimePoint now) {
  const auto& waiting = calls_.waiting();
  const auto max_running = static_cast<size_t>(options_.engine.max_sequences);
  for (size_t i = 0; i < waiting.size() && calls_.running().size() < max_running;) {
    if (calls_.SessionRuns(*waiting[i])) {
      ++i;
      continue;
    }
    const Beginning beginning = Begin(waiting[i].get(), now);
    if (beginning == Beginning::kMustWait) return;
    if (beginning == Beginning::kRuns) {
      calls_.MoveToRunning(i);
    } else {
      calls_.EraseWaiting(i);
    }
    evictor_.RemoveEnded();
  }
}

SessionEngine::Beginning SessionEngine::Begin(SessionCall* call, TimePoint now) {
  const VerifyCall& asked = call->asked;
  call->session = asked.session_id.empty() ? nullptr : sessions_.Find(asked.session_id);
  if (Session* known = call->session;
      known != nullptr && !asked.request_id.empty() && known->last_request == asked.request_id) {
    sessions_.Touch(known, now);
    End(call, known->last_answer);
    return Beginning::kEnded;
  }
  const Status status = starter_.Start(call, now);
  if (status.ok()) return Beginning::kRuns;
  const bool no_room = status.code() == StatusCode::kResourceExhausted;
  if (no_room && !calls_.running().empty()) return Beginning::kMustWait;
  End(call, status);
  return Beginning::kEnded;
}

// ---- A pass ----

void SessionEngine::RunStep(TimePoint now) {
  Status failed = health();
  const Status broken = Contain([&] {
    if (failed.ok()) failed = TryStep(now);
  });
  if (!failed.ok()) AbandonRunning(failed);
  if (!broken.ok()) {
    AbandonRunning(broken);
    if (calls_.running().empty() && !calls_.waiting().empty()) {  // it broke while one began
      finished_.push_back(
          {calls_.waiting().front()->id, Internal("INVARIANT: {}", broken.message())});
      calls_.EraseWaiting(0);
    }
  }
  calls_.EraseEnded();
  RemoveEnded();
  if (!broken.ok()) health_.StepBroke(broken, [this] { return CheckIntegrity(); });
  if (!health_.ok()) RefuseWaiting();
  ReportState();
}

Status SessionEngine::TryStep(TimePoint now) {
  BeginWaiting(now);
  TALON_RETURN_IF_ERROR(RunPass());
  if (options_.engine.kv_audit) {
    if (const Status audit = CheckIntegrity(); !audit.ok()) {
      health_.Stop(audit);
      return audit;
    }
  }
  for (const auto& call : calls_.running()) Settle(call.get(), now);
  return OkStatus();
}

Status SessionEngine::RunPass() {
  int tree_rows = 0;
  const std::vector<ActiveRequest*> trees = NextTrees(&tree_rows);
  const std::vector<PromptChunk> prompts = NextPromptChunks(tree_rows);
  if (trees.empty() && prompts.empty()) return OkStatus();
  const Stopwatch watch;
  TALON_RETURN_IF_ERROR(step_.Run(trees, prompts));
  const double seconds = watch.Seconds();
  for (const auto& call : calls_.running()) {
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
  for (const auto& call : calls_.running()) {
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
  for (const auto& call : calls_.running()) {
    if (call->run->prompt_left() > 0) prompts.push_back(call->run.get());
  }
  const int rows = std::min(options_.engine.prefill_chunk, parts_.target->max_rows() - tree_rows);
  return SharePromptRows(std::move(prompts), {.rows = rows, .blocks = kv_->pool().free_blocks()},
                         *kv_);
}

// After a pass: answers the call if it is done.
void SessionEngine::Settle(SessionCall* call, TimePoint now) {
  const ActiveRequest& run = *call->run;
  if (run.prompt_left() > 0) return;
  if (call->tree_rows == 0) {
    Answer(call, now);
  } else if (run.result.finish == FinishReason::kDeadEnd) {
    Abandon(call, Internal("no token has a probability"));
  } else if (run.result.finish == FinishReason::kError) {
    Abandon(call, run.result.error);
  } else if (!run.result.tokens.empty() || run.result.finish == FinishReason::kStop) {
    Answer(call, now);
  } else if (run.plain_next && call->failed_steps++ > 0) {
    Abandon(call, Internal("the step cannot be committed"));
  }
}

void SessionEngine::Answer(SessionCall* call, TimePoint now) {
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

void SessionEngine::AbandonRunning(const Status& why) {
  for (const auto& call : calls_.running()) {
    if (call->run == nullptr) continue;
    const Status freed = Contain([&] { Abandon(call.get(), why); });
    if (freed.ok()) continue;
    health_.Stop(freed);
    call->run.reset();
    finished_.push_back({call->id, Internal("INVARIANT: {}", why.message())});
  }
}

void SessionEngine::RefuseWaiting() {
  while (!calls_.waiting().empty()) {
    finished_.push_back({calls_.waiting().front()->id, health()});
    calls_.EraseWaiting(0);
  }
}

void SessionEngine::RemoveEnded() {
  health_.StopIfBroken([this] { evictor_.RemoveEnded(); });
}

// A broken invariant: the session's state cannot be trusted any more.
void SessionEngine::Abandon(SessionCall* call, const Status& why) {
  call->session->sequence = std::move(call->run->sequence);
  if (call->own == nullptr) evictor_.Remove(std::exchange(call->session, nullptr), "end");
  End(call, Internal("INVARIANT: {}", why.message()));
}

// The call is over, and what was its own goes with it.
void SessionEngine::End(SessionCall* call, Result<VerifyAnswer> answer) {
  call->run.reset();
  if (call->own != nullptr) kv_->Free(&call->own->sequence);
  finished_.push_back({call->id, std::move(answer)});
}

// ---- State ----

void SessionEngine::ReportState() {
  const int cached = kv_->pool().cached_blocks();
  metrics().Set(Gauge::kKvBlocks, kv_->pool().free_blocks() - cached, "free");
  metrics().Set(Gauge::kKvBlocks, cached, "cached");
  metrics().Set(Gauge::kKvBlocks, kv_->pool().used_blocks(), "used");
  metrics().Set(Gauge::kKvUsageRatio,
                static_cast<double>(kv_->pool().used_blocks()) / kv_->shape().num_blocks);
  metrics().Set(Gauge::kRemoteSessions, sessions_.size());
  metrics().Set(Gauge::kRequestsRunning, static_cast<double>(calls_.running().size()));
  metrics().Set(Gauge::kRequestsWaiting, static_cast<double>(calls_.waiting().size()));
}

Status SessionEngine::CheckIntegrity() const {
  std::vector<const Sequence*> sequences;
  for (const auto& session : sessions_.all()) sequences.push_back(&session->sequence);
  for (const auto& call : calls_.running()) sequences.push_back(&call->run->sequence);
  TALON_RETURN_IF_ERROR(kv_->CheckIntegrity(sequences));
  for (const Sequence* sequence : sequences) TALON_RETURN_IF_ERROR(kv_->audit().Check(*sequence));
  return OkStatus();
}

}  // namespace talon
