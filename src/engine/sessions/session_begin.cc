// How a waiting call begins: what its context is, what of it the session already has, and whether
// there is room for it.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/math.h"
#include "engine/prefix_hash.h"
#include "engine/sessions/session_engine.h"

namespace talon {
namespace {

int CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

int Covered(const Sequence& sequence) { return sequence.committed_len + sequence.tail_len; }

}  // namespace

// Begins calls in order of arrival, except those whose session is busy with an earlier one. A call
// that finds no room waits for the running ones, and so do all calls behind it.
void SessionEngine::BeginWaiting(TimePoint now) {
  const auto session_runs = [this](const Call& call) {
    return !call.asked.session_id.empty() && std::ranges::any_of(running_, [&](const auto& other) {
      return other->asked.session_id == call.asked.session_id;
    });
  };
  for (size_t i = 0;
       i < waiting_.size() && static_cast<int>(running_.size()) < options_.engine.max_sequences;) {
    if (session_runs(*waiting_[i])) {
      ++i;
      continue;
    }
    const Beginning beginning = Begin(waiting_[i].get(), now);
    if (beginning == Beginning::kMustWait) return;
    std::unique_ptr<Call> call = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
    if (beginning == Beginning::kRuns) running_.push_back(std::move(call));
    RemoveEnded();
  }
}

SessionEngine::Beginning SessionEngine::Begin(Call* call, TimePoint now) {
  const VerifyCall& asked = call->asked;
  call->session = asked.session_id.empty() ? nullptr : sessions_.Find(asked.session_id);
  if (Session* known = call->session;
      known != nullptr && !asked.request_id.empty() && known->last_request == asked.request_id) {
    sessions_.Touch(known, now);
    End(call, known->last_answer);
    return Beginning::kEnded;
  }
  Status status = FindContext(call);
  if (status.ok()) {
    StartRun(call);
    status = FindRoom(*call);
    if (status.ok()) {
      EnterTable(call, now);
      return Beginning::kRuns;
    }
    StepBack(call);
    if (!running_.empty()) return Beginning::kMustWait;
  }
  End(call, status);
  return Beginning::kEnded;
}

// Compares what the client sent with what the session has: hit, rebuild or desync.
Status SessionEngine::FindContext(Call* call) {
  const VerifyCall& asked = call->asked;
  static const std::vector<int32_t> kNone;
  const std::vector<int32_t>& known = call->session != nullptr ? call->session->tokens : kNone;
  const bool other_length =
      asked.expected_prefix > 0 && asked.expected_prefix != static_cast<int>(known.size());
  const bool other_tokens =
      asked.expected_prefix > 0 && asked.prefix_hash != 0 && asked.prefix_hash != PrefixHash(known);
  const bool agrees = !known.empty() && !other_length && !other_tokens;
  if (agrees && (asked.prompt.empty() || !asked.delta.empty())) {
    call->context = known;
    call->context.insert(call->context.end(), asked.delta.begin(), asked.delta.end());
    call->answer.cache_hit = true;
  } else if (!asked.prompt.empty()) {
    call->context = asked.prompt;
    call->answer.cache_hit = agrees && asked.expected_prefix > 0 &&
                             CommonPrefix(known, asked.prompt) == static_cast<int>(known.size());
  } else if (asked.session_id.empty()) {
    return InvalidArgument("PROMPT_EMPTY: a call without a session needs prompt_token_ids");
  } else {
    return Desync(*call, known.empty()  ? "has no tokens here"
                         : other_length ? fmt::format("has {} tokens here", known.size())
                                        : "has other tokens here");
  }
  const int limit = options_.engine.max_length;
  if (static_cast<int>(call->context.size()) < limit) return OkStatus();
  return InvalidArgument("PROMPT_TOO_LONG: {} tokens, the context holds {} and one must be left",
                         call->context.size(), limit);
}

Status SessionEngine::Desync(const Call& call, std::string_view problem) {
  constexpr const char* kCode = "CACHE_EVICTED_DELTA_ONLY";
  metrics().Add(Counter::kRemoteDesyncs, 1, kCode);
  return FailedPrecondition("{}: session '{}' {}, the call follows {} and has no prompt", kCode,
                            call.asked.session_id, problem, call.asked.expected_prefix);
}

void SessionEngine::StartRun(Call* call) {
  if (call->session == nullptr) {
    call->own = std::make_unique<Session>();
    call->own->id = call->asked.session_id;
    call->own->sequence.id = next_sequence_++;
    call->session = call->own.get();
  }
  const VerifyCall& asked = call->asked;
  const int room = options_.engine.max_length - static_cast<int>(call->context.size());
  std::optional<TokenTree> tree;
  if (!asked.drafts.empty()) {
    tree = TreeOfCall(asked.drafts, call->context.back(),
                      std::min(room, SessionOptions::kMaxTreeDepth));
  } else if (asked.decode_on_empty) {
    tree.emplace(call->context.back());
  }
  call->tree_rows = tree ? tree->size() : 0;
  call->path_rows = tree ? 1 + TreeDepths(tree->parents).back() : 0;
  Prepare(call);

  SamplingParams sampling = SamplingOfCall(asked);
  sampling.max_tokens = room;
  call->run = std::make_unique<ActiveRequest>(
      call->session->sequence.id, GenerateRequest{.prompt = call->context, .sampling = sampling},
      std::vector<int32_t>(), OutputText(nullptr, StopMatcher()));
  call->run->sequence = std::exchange(call->session->sequence, {});
  call->run->partial = std::exchange(call->session->partial, {});
  call->run->next_drafts = std::move(tree);
  call->run->accept = asked.rejection ? AcceptMode::kRejection : AcceptMode::kMatch;
}

// Cuts the session's K/V to what it shares with the context, the root not being part of it. The
// provisional tail goes on only if the step follows it at once.
void SessionEngine::Prepare(Call* call) {
  Session& session = *call->session;
  Sequence& sequence = session.sequence;
  const int covered = Covered(sequence);
  const int wanted = call->tree_rows > 0 ? call->context_end() : covered;
  const int shared = std::min({covered, wanted, CommonPrefix(session.tokens, call->context)});
  if (shared < covered || covered < call->context_end()) {
    kv_->DropTail(&sequence);
    session.partial.lists.reset();
    session.partial.partial_steps = 0;
  }
  int length = std::min(shared, sequence.committed_len);
  // Blocks that the prefix index knows can only follow whole ones.
  const int block = options_.engine.block_size;
  const int whole = length / block;
  const bool attaches = options_.engine.prefix_cache && sequence.indexed_blocks >= whole &&
                        (whole + 1) * block <= call->context_end();
  if (attaches) length = whole * block;
  if (length < sequence.committed_len) {
    const Status status = kv_->Rewind(&sequence, length);
    TALON_CHECK(status.ok(), "{}", status.message());
  }
  sequence.tokens = call->context;
  if (attaches) kv_->prefix().Attach(&sequence, call->context_end());
}

// Blocks that the call may still take from the pool.
int SessionEngine::BlocksToCome(const Call& call) const {
  const Sequence& sequence = call.run->sequence;
  const int tree = options_.engine.step.nwor ? call.path_rows : call.tree_rows;
  const int tokens = call.context_end() + tree - sequence.committed_len;
  return kv_->BlocksNeeded(sequence, std::max(tokens, 0));
}

// Finds blocks for the whole call before it begins: a call that runs never lacks them. Idle
// sessions make way, the least recently used first.
Status SessionEngine::FindRoom(const Call& call) {
  const bool enters = call.own != nullptr && !call.asked.session_id.empty();
  const auto is_idle = [this](const Session& session) { return !IsBusy(session); };
  if (enters && sessions_.size() >= options_.max_sessions && sessions_.Oldest(is_idle) == nullptr) {
    return ResourceExhausted("TOO_MANY_SESSIONS: {} sessions, all busy", sessions_.size());
  }
  const KvShape& shape = kv_->shape();
  const int in_all = CeilDiv(call.context_end() + call.path_rows, shape.block_size);
  int promised = BlocksToCome(call);
  for (const auto& other : running_) promised += BlocksToCome(*other);
  while (in_all <= shape.num_blocks && promised > kv_->free_blocks() && EvictIdle()) {
  }
  if (in_all <= shape.num_blocks && promised <= kv_->free_blocks()) return OkStatus();
  return ResourceExhausted("KV_FULL: {} tokens and a path of {} need {} blocks, {} of {} are free",
                           call.context.size(), call.path_rows, in_all, kv_->free_blocks(),
                           shape.num_blocks);
}

void SessionEngine::EnterTable(Call* call, TimePoint now) {
  if (call->own != nullptr && !call->asked.session_id.empty()) {
    if (sessions_.size() >= options_.max_sessions) EvictIdle();
    call->session = sessions_.Add(std::move(call->own));
  }
  if (call->own == nullptr) sessions_.Touch(call->session, now);
  if (!options_.engine.prefix_cache || call->answer.cache_hit) return;
  metrics().Add(Counter::kKvPrefixQueryTokens, static_cast<int64_t>(call->context.size()));
  metrics().Add(Counter::kKvPrefixHitTokens, call->run->sequence.committed_len);
}

// The session is as it was, but for K/V that it no longer has.
void SessionEngine::StepBack(Call* call) {
  Session& session = *call->session;
  session.sequence = std::move(call->run->sequence);
  session.partial = std::move(call->run->partial);
  call->run.reset();
  const int shared = CommonPrefix(session.tokens, call->context);
  if (shared < session.sequence.committed_len) {
    const Status status = kv_->Rewind(&session.sequence, shared);
    TALON_CHECK(status.ok(), "{}", status.message());
  }
  session.sequence.tokens = session.tokens;
  if (call->own == nullptr) return;
  kv_->Free(&call->own->sequence);
  call->own.reset();
  call->session = nullptr;
}

bool SessionEngine::IsBusy(const Session& session) const {
  const auto is_for = [&](const auto& call) { return call->asked.session_id == session.id; };
  return std::ranges::any_of(waiting_, is_for) || std::ranges::any_of(running_, is_for);
}

// Sessions whose end was asked for, once the calls that were there before it are over.
void SessionEngine::RemoveEnded() {
  const auto is_over = [this](const Session& session) {
    const auto is_before = [&](const auto& call) {
      return call->asked.session_id == session.id && call->id <= session.ends_after;
    };
    return session.ends_after > 0 && std::ranges::none_of(waiting_, is_before) &&
           std::ranges::none_of(running_, is_before);
  };
  while (Session* session = sessions_.Oldest(is_over)) Remove(session, "end");
}

bool SessionEngine::EvictIdle() {
  Session* oldest = sessions_.Oldest([this](const Session& session) { return !IsBusy(session); });
  if (oldest == nullptr) return false;
  Remove(oldest, "lru");
  return true;
}

void SessionEngine::Remove(Session* session, const char* reason) {
  LogEvent(LogLevel::kInfo, "session ended",
           {{"id", session->id}, {"reason", reason}, {"tokens", session->tokens.size()}});
  kv_->Free(&session->sequence);
  sessions_.Remove(session);
  metrics().Add(Counter::kRemoteSessionEvictions, 1, reason);
}

}  // namespace talon
