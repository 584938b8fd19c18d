#include "engine/sessions/call_starter.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "engine/prefix_hash.h"
#include "engine/sessions/verify_checks.h"

namespace talon {
namespace {

int CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

int Covered(const Sequence& sequence) { return sequence.committed_len + sequence.tail_len; }

}  // namespace

Status CallStarter::Start(SessionCall* call, TimePoint now) {
  TALON_RETURN_IF_ERROR(FindContext(call));
  StartRun(call);
  const Status status = FindRoom(*call);
  if (status.ok()) {
    EnterTable(call, now);
  } else {
    StepBack(call);
  }
  return status;
}

// Compares what the client sent with what the session has: hit, rebuild or desync.
Status CallStarter::FindContext(SessionCall* call) {
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
  const int limit = engine_options().max_length;
  if (static_cast<int>(call->context.size()) < limit) return CheckAnswer(*call);
  return InvalidArgument("PROMPT_TOO_LONG: {} tokens, the context holds {} and one must be left",
                         call->context.size(), limit);
}

// What the call says has been answered must be something that its grammar can go on from.
Status CallStarter::CheckAnswer(const SessionCall& call) {
  if (call.grammar == nullptr) return OkStatus();
  const int start = call.asked.answer_start;
  const auto length = static_cast<int>(call.context.size());
  if (start < 1 || start > length) {
    return InvalidArgument("BAD_GRAMMAR: answer_start {}, must be 1 to {}", start, length);
  }
  const GrammarCursor cursor(call.grammar);
  const std::span<const int32_t> answer = std::span(call.context).subspan(start);
  if (cursor.After(answer, {}) != Matcher::kDead) return OkStatus();
  return InvalidArgument("BAD_GRAMMAR: the {} tokens of the answer do not match", answer.size());
}

Status CallStarter::Desync(const SessionCall& call, std::string_view problem) {
  constexpr const char* kCode = "CACHE_EVICTED_DELTA_ONLY";
  parts_.metrics->Add(Counter::kRemoteDesyncs, 1, kCode);
  return FailedPrecondition("{}: session '{}' {}, the call follows {} and has no prompt", kCode,
                            call.asked.session_id, problem, call.asked.expected_prefix);
}

void CallStarter::StartRun(SessionCall* call) {
  if (call->session == nullptr) {
    call->own = std::make_unique<Session>();
    call->own->id = call->asked.session_id;
    call->own->sequence.id = next_sequence_++;
    call->session = call->own.get();
  }
  const VerifyCall& asked = call->asked;
  const int room = engine_options().max_length - static_cast<int>(call->context.size());
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
  if (!sampling.seed) sampling.seed = call->session->seed;
  sampling.max_tokens = room;
  sampling.grammar = call->grammar;
  sampling.answer_start = asked.answer_start;
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
void CallStarter::Prepare(SessionCall* call) {
  Session& session = *call->session;
  Sequence& sequence = session.sequence;
  const int covered = Covered(sequence);
  const int wanted = call->tree_rows > 0 ? call->context_end() : covered;
  const int shared = std::min({covered, wanted, CommonPrefix(session.tokens, call->context)});
  if (shared < covered || covered < call->context_end()) {
    parts_.kv->staging().DropTail(&sequence);
    session.partial.lists.reset();
    session.partial.partial_steps = 0;
  }
  int length = std::min(shared, sequence.committed_len);
  // Blocks that the prefix index knows can only follow whole ones.
  const int block = engine_options().block_size;
  const int whole = length / block;
  const bool attaches = engine_options().prefix_cache && sequence.indexed_blocks >= whole &&
                        (whole + 1) * block <= call->context_end();
  if (attaches) length = whole * block;
  if (length < sequence.committed_len) {
    const Status status = parts_.kv->Rewind(&sequence, length);
    TALON_CHECK(status.ok(), "{}", status.message());
  }
  sequence.tokens = call->context;
  if (attaches) parts_.kv->prefix().Attach(&sequence, call->context_end());
}

// Blocks that the call may still take from the pool.
int CallStarter::BlocksToCome(const SessionCall& call) const {
  const Sequence& sequence = call.run->sequence;
  const int tree = engine_options().step.nwor ? call.path_rows : call.tree_rows;
  const int tokens = call.context_end() + tree - sequence.committed_len;
  return parts_.kv->BlocksNeeded(sequence, std::max(tokens, 0));
}

// Finds blocks for the whole call before it begins: a call that runs never lacks them. Idle
// sessions make way, the least recently used first, then those of calls behind it.
Status CallStarter::FindRoom(const SessionCall& call) {
  const bool enters = call.own != nullptr && !call.asked.session_id.empty();
  if (enters && parts_.sessions->size() >= parts_.options->max_sessions &&
      !parts_.evictor->CanMakeWay(call)) {
    return ResourceExhausted("TOO_MANY_SESSIONS: {} sessions, all busy", parts_.sessions->size());
  }
  const KvShape& shape = parts_.kv->shape();
  const int in_all = CeilDiv(call.context_end() + call.path_rows, shape.block_size);
  int promised = BlocksToCome(call);
  for (const auto& other : parts_.calls->running()) promised += BlocksToCome(*other);
  while (in_all <= shape.num_blocks && promised > parts_.kv->pool().free_blocks() &&
         parts_.evictor->MakeWay(call)) {
  }
  if (in_all <= shape.num_blocks && promised <= parts_.kv->pool().free_blocks()) return OkStatus();
  return ResourceExhausted("KV_FULL: {} tokens and a path of {} need {} blocks, {} of {} are free",
                           call.context.size(), call.path_rows, in_all,
                           parts_.kv->pool().free_blocks(), shape.num_blocks);
}

void CallStarter::EnterTable(SessionCall* call, TimePoint now) {
  if (call->own != nullptr && !call->asked.session_id.empty()) {
    if (parts_.sessions->size() >= parts_.options->max_sessions) parts_.evictor->MakeWay(*call);
    call->session = parts_.sessions->Add(std::move(call->own));
  }
  if (call->own == nullptr) parts_.sessions->Touch(call->session, now);
  if (!engine_options().prefix_cache || call->answer.cache_hit) return;
  parts_.metrics->Add(Counter::kKvPrefixQueryTokens, static_cast<int64_t>(call->context.size()));
  parts_.metrics->Add(Counter::kKvPrefixHitTokens, call->run->sequence.committed_len);
}

// The session is as it was, but for K/V that it no longer has.
void CallStarter::StepBack(SessionCall* call) {
  Session& session = *call->session;
  session.sequence = std::move(call->run->sequence);
  session.partial = std::move(call->run->partial);
  call->run.reset();
  const int shared = CommonPrefix(session.tokens, call->context);
  if (shared < session.sequence.committed_len) {
    const Status status = parts_.kv->Rewind(&session.sequence, shared);
    TALON_CHECK(status.ok(), "{}", status.message());
  }
  session.sequence.tokens = session.tokens;
  if (call->own == nullptr) return;
  parts_.kv->Free(&call->own->sequence);
  call->own.reset();
  call->session = nullptr;
}

}  // namespace talon
