#include "remote/draft_sessions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/contain.h"
#include "base/random.h"
#include "engine/draft_forest.h"
#include "remote/overlap.h"

namespace talon {
namespace {

int CommonPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int>(at - a.begin());
}

}  // namespace

Status CheckRemoteDrafter(const DrafterList& drafters) {
  if (drafters.HasHead()) {
    return InvalidArgument(
        "drafter: {} cannot run remotely: each step needs the target's hidden states, which do "
        "not travel; use a model, NGRAM or SUFFIX",
        drafters.Name());
  }
  for (const DrafterKind kind :
       {DrafterKind::kStandalone, DrafterKind::kNgram, DrafterKind::kSuffix}) {
    if (drafters == kind) return OkStatus();
  }
  return InvalidArgument("drafter: '{}' cannot run remotely; STANDALONE, NGRAM and SUFFIX can",
                         drafters.Name());
}

DraftSessions::DraftSessions(std::unique_ptr<Drafter> drafter, DraftSessionsOptions options)
    : drafter_(std::move(drafter)), options_(std::move(options)), health_(options_.metrics) {}

DraftSessions::~DraftSessions() = default;

Result<DraftSessions::DraftParams> DraftSessions::ParamsOf(const DraftCall& call) const {
  if (call.context.empty()) return InvalidArgument("draft: no context");
  const int length = call.max_length == 0 ? options_.max_draft_tokens : call.max_length;
  const int beams = call.num_beams == 0 ? options_.num_beams : call.num_beams;
  if (length < 1 || length > DraftSessionsOptions::kMaxLength) {
    return InvalidArgument("TREE_TOO_LARGE: max_draft_len {}, must be 1 to {}", length,
                           DraftSessionsOptions::kMaxLength);
  }
  if (beams < 1 || beams > DraftSessionsOptions::kMaxBeams) {
    return InvalidArgument("TREE_TOO_LARGE: num_beams {}, must be 1 to {}", beams,
                           DraftSessionsOptions::kMaxBeams);
  }
  if (call.max_nodes < 0) return InvalidArgument("TREE_INVALID: max_nodes {}", call.max_nodes);
  const float temperature = call.temperature.value_or(options_.temperature);
  if (!(temperature >= 0) || std::isinf(temperature)) {
    return InvalidArgument("BAD_TEMPERATURE: {}, must be 0 or more", temperature);
  }
  constexpr int kMost = DraftSessionsOptions::kMaxNodes;
  if (call.max_nodes > 0) {
    return DraftParams{.budget = {.max_nodes = std::min(call.max_nodes, kMost) + 1,
                                  .max_depth = length,
                                  .top_k = beams}};
  }
  const int branches = temperature > 0 ? beams : 1;
  return DraftParams{.budget = {.max_nodes = kMost + 1, .max_depth = length, .top_k = branches},
                     .temperature = temperature,
                     .beams = branches};
}

// A caller that finds no batch being served serves the next one, whether or not its own call is in
// it.
Result<DraftAnswer> DraftSessions::Draft(const DraftCall& call,
                                         const std::function<bool()>& cancelled) {
  TALON_ASSIGN_OR_RETURN(const DraftParams params, ParamsOf(call));
  Caller caller{.call = call, .params = params, .cancelled = cancelled};
  std::vector<Caller*> batch;
  batch.reserve(DraftSessionsOptions::kMaxBatch);  // nothing throws while the caller is queued
  std::unique_lock lock(mutex_);
  waiting_.push_back(&caller);
  while (!caller.served) {
    if (serving_) {
      changed_.wait(lock);
      continue;
    }
    serving_ = true;
    TakeBatch(&batch);
    lock.unlock();
    Serve(batch);
    lock.lock();
    for (Caller* other : batch) other->served = true;
    serving_ = false;
    changed_.notify_all();
  }
  return std::move(*caller.answer);
}

// The first waiting calls, at most one of each session, as far as their contexts fit together.
void DraftSessions::TakeBatch(std::vector<Caller*>* batch) {
  batch->clear();
  int64_t tokens = 0;
  for (auto at = waiting_.begin();
       at != waiting_.end() && batch->size() < DraftSessionsOptions::kMaxBatch;) {
    const DraftCall& call = (*at)->call;
    const bool repeats = std::ranges::any_of(*batch, [&](const Caller* other) {
      return !call.session_id.empty() && other->call.session_id == call.session_id;
    });
    const auto size = static_cast<int64_t>(call.context.size());
    const bool fits =
        batch->empty() || options_.max_tokens == 0 || tokens + size <= options_.max_tokens;
    if (repeats || !fits) {
      ++at;
      continue;
    }
    tokens += size;
    batch->push_back(*at);
    at = waiting_.erase(at);
  }
}

void DraftSessions::Serve(const std::vector<Caller*>& batch) {
  if (health_.ok()) {
    const Status broken = Contain([&] { TryServe(batch); });
    if (!broken.ok()) Fail(batch, broken);
  } else {
    for (Caller* caller : batch) caller->answer = health_.status();
  }
  num_sessions_ = static_cast<int>(sessions_.size());
}

void DraftSessions::Fail(const std::vector<Caller*>& batch, const Status& why) {
  for (Caller* caller : batch) caller->answer = Internal("INVARIANT: {}", why.message());
  const Status ended = EndSessionsOf(batch);
  health_.StepBroke(why, [&] { return ended; });
  if (!health_.ok() && options_.on_stopped) options_.on_stopped();
}

void DraftSessions::TryServe(const std::vector<Caller*>& batch) {
  const Stopwatch watch;
  std::vector<Caller*> drafting;
  for (Caller* caller : batch) {
    if (caller->cancelled && caller->cancelled()) {
      caller->answer = Cancelled("draft: the client has given up");
      continue;
    }
    Result<Session*> session = CatchUp(caller->call, &caller->rows);
    if (!session.ok()) {
      caller->answer = session.status();
      continue;
    }
    caller->session = *session;
    caller->session->busy = true;
    drafting.push_back(caller);
  }
  if (!drafting.empty()) Propose(drafting);
  for (Caller* caller : drafting) {
    (*caller->answer)->model_seconds = watch.Seconds();
    caller->session->busy = false;
    if (!caller->call.session_id.empty()) continue;
    EndSession(std::ranges::find(sessions_, caller->session->sequence, &Session::sequence));
  }
}

void DraftSessions::Propose(const std::vector<Caller*>& batch) {
  std::vector<DraftRequest> requests;
  std::vector<TokenTree> trees;
  for (const Caller* caller : batch) {
    const Session& session = *caller->session;
    requests.push_back({.sequence = session.sequence,
                        .tokens = session.tokens,
                        .budget = caller->params.budget,
                        .temperature = caller->params.temperature,
                        .seed = caller->call.seed ? *caller->call.seed : RandomSeed()});
    trees.emplace_back(session.tokens.back());
  }
  drafter_->Propose(requests, trees);
  for (size_t i = 0; i < batch.size(); ++i) {
    const DraftParams& params = batch[i]->params;
    DraftAnswer answer{.request_id = batch[i]->call.request_id};
    answer.drafts = Prune(ForestOfTree(trees[i]), {.beams = params.beams,
                                                   .max_depth = params.budget.max_depth,
                                                   .max_nodes = params.budget.max_nodes - 1,
                                                   .end_tokens = options_.eos_ids});
    answer.rows = batch[i]->rows + answer.drafts.size();
    batch[i]->answer = std::move(answer);
  }
}

Result<DraftSessions::Session*> DraftSessions::CatchUp(const DraftCall& call, int* computed) {
  auto at = sessions_.end();
  if (!call.session_id.empty()) at = std::ranges::find(sessions_, call.session_id, &Session::id);
  if (at != sessions_.end() && call.reset_cache) {
    EndSession(at);
    at = sessions_.end();
  }
  const int common = at == sessions_.end() ? 0 : CommonPrefix(at->tokens, call.context);
  *computed = static_cast<int>(call.context.size()) - common;
  MakeRoom(at == sessions_.end() ? "" : at->id, call.context.size());
  if (common == 0) {  // no common prefix
    if (at != sessions_.end()) EndSession(at);
    sessions_.push_front({.id = call.session_id, .sequence = next_sequence_++});
    const Status status = BeginSession(&sessions_.front(), call.context);
    if (!status.ok()) {
      sessions_.pop_front();
      return status;
    }
    return &sessions_.front();
  }
  if (common < static_cast<int>(at->tokens.size())) drafter_->Rewind(at->sequence, common);
  const std::span<const int32_t> more = std::span(call.context).subspan(common);
  if (!more.empty()) drafter_->Observe(at->sequence, more);
  at->tokens = call.context;
  sessions_.splice(sessions_.begin(), sessions_, at);
  return &sessions_.front();
}

Status DraftSessions::BeginSession(Session* session, const std::vector<int32_t>& context) {
  session->tokens = context;
  Status status = drafter_->Begin(session->sequence, session->tokens);
  if (!status.ok()) drafter_->End(session->sequence);
  return status;
}

// Evicts sessions from the back until one more, or one with more tokens, fits.
void DraftSessions::MakeRoom(const std::string& kept_id, size_t new_tokens) {
  const auto is_kept = [&](const Session& session) {
    return !kept_id.empty() && session.id == kept_id;
  };
  auto tokens = static_cast<int64_t>(new_tokens);
  size_t count = 1;
  for (const Session& session : sessions_) {
    if (is_kept(session)) continue;
    tokens += static_cast<int64_t>(session.tokens.size());
    ++count;
  }
  const auto most = static_cast<size_t>(options_.max_sessions);
  for (auto at = sessions_.end(); at != sessions_.begin();) {
    if (count <= most && (options_.max_tokens == 0 || tokens <= options_.max_tokens)) return;
    --at;
    if (is_kept(*at) || at->busy) continue;
    tokens -= static_cast<int64_t>(at->tokens.size());
    --count;
    const auto gone = at++;
    EndSession(gone);
  }
}

void DraftSessions::EndSession(std::list<Session>::iterator at) {
  drafter_->End(at->sequence);
  sessions_.erase(at);
}

// Ends the sessions of a batch that failed, whose state is unknown; those without an id are of this
// batch. An error: the drafter may still hold one.
Status DraftSessions::EndSessionsOf(const std::vector<Caller*>& batch) {
  Status ended;
  std::erase_if(sessions_, [&](const Session& session) {
    const bool fails = session.id.empty() || std::ranges::any_of(batch, [&](const Caller* caller) {
                         return caller->call.session_id == session.id;
                       });
    if (!fails) return false;
    const Status one = Contain([&] { drafter_->End(session.sequence); });
    if (!one.ok()) ended = one;
    return true;
  });
  return ended;
}

}  // namespace talon
