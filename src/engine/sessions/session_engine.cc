#include "engine/sessions/session_engine.h"

#include <utility>

#include "base/contain.h"

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
      evictor_(
          {.sessions = &sessions_, .calls = &calls_, .kv = kv_.get(), .metrics = parts_.metrics}),
      starter_({.options = &options_,
                .calls = &calls_,
                .sessions = &sessions_,
                .evictor = &evictor_,
                .kv = kv_.get(),
                .metrics = parts_.metrics}),
      ender_({.sessions = &sessions_,
              .evictor = &evictor_,
              .kv = kv_.get(),
              .metrics = parts_.metrics}),
      pass_({.options = &options_,
             .calls = &calls_,
             .backend = parts_.backend,
             .target = parts_.target,
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
  const bool bad = matcher.status().code() == StatusCode::kInvalidArgument;
  if (bad) return matcher.status().WithContext("BAD_GRAMMAR");
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
    ender_.End(call, known->last_answer);
    return Beginning::kEnded;
  }
  const Status status = starter_.Start(call, now);
  if (status.ok()) return Beginning::kRuns;
  const bool no_room = status.code() == StatusCode::kResourceExhausted;
  if (no_room && !calls_.running().empty()) return Beginning::kMustWait;
  ender_.End(call, status);
  return Beginning::kEnded;
}

// ---- A step ----

void SessionEngine::RunStep(TimePoint now) {
  Status failed = health();
  const Status broken = Contain([&] {
    if (failed.ok()) failed = TryStep(now);
  });
  if (!failed.ok()) AbandonRunning(failed);
  if (!broken.ok()) {
    AbandonRunning(broken);
    if (calls_.running().empty() && !calls_.waiting().empty()) {  // it broke while one began
      RefuseFirstWaiting(Internal("INVARIANT: {}", broken.message()));
    }
  }
  calls_.EraseEnded();
  RemoveEnded();
  if (!broken.ok()) health_.StepBroke(broken, [this] { return CheckIntegrity(); });
  while (!health_.ok() && !calls_.waiting().empty()) RefuseFirstWaiting(health());
  ReportState();
}

Status SessionEngine::TryStep(TimePoint now) {
  BeginWaiting(now);
  TALON_RETURN_IF_ERROR(pass_.Run());
  if (options_.engine.kv_audit) {
    if (const Status audit = CheckIntegrity(); !audit.ok()) {
      health_.Stop(audit);
      return audit;
    }
  }
  for (const auto& call : calls_.running()) ender_.Settle(call.get(), now);
  return OkStatus();
}

void SessionEngine::AbandonRunning(const Status& why) {
  for (const auto& call : calls_.running()) {
    if (call->run == nullptr) continue;
    const Status freed = Contain([&] { ender_.Abandon(call.get(), why); });
    if (freed.ok()) continue;
    health_.Stop(freed);
    call->run.reset();
    ender_.Refuse(*call, Internal("INVARIANT: {}", why.message()));
  }
}

void SessionEngine::RefuseFirstWaiting(const Status& why) {
  ender_.Refuse(*calls_.waiting().front(), why);
  calls_.EraseWaiting(0);
}

void SessionEngine::RemoveEnded() {
  health_.StopIfBroken([this] { evictor_.RemoveEnded(); });
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
