#include "remote/verifier.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/prefix_hash.h"
#include "grammar/matcher.h"
#include "remote/overlap.h"

namespace talon {
namespace {

constexpr auto kFirstRetryPause = std::chrono::milliseconds(50);
constexpr auto kLongestRetryPause = std::chrono::milliseconds(800);
constexpr int kMaxTries = 5;           // where there is no room
constexpr double kEndSessionTime = 2;  // seconds

}  // namespace

RecoveryAction RecoveryFor(const Status& status) {
  switch (status.code()) {
    case StatusCode::kFailedPrecondition:
    case StatusCode::kInternal:
      return RecoveryAction::kResendAll;
    case StatusCode::kDeadlineExceeded:
      return RecoveryAction::kTimeOut;
    case StatusCode::kResourceExhausted:
      return RecoveryAction::kTryAgain;
    case StatusCode::kUnavailable:
      return RecoveryAction::kWait;
    default:
      return RecoveryAction::kGiveUp;
  }
}

Verifier::Verifier(Parts parts, VerifierOptions options, std::string session_id,
                   const SamplingParams& sampling)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      session_id_(std::move(session_id)),
      sampling_(sampling) {}

std::string Verifier::NextRequestId() { return fmt::format("{}-v{}", session_id_, next_call_++); }

VerifyCall Verifier::MakeCall(std::span<const int32_t> context, const DraftForest& drafts) {
  VerifyCall call{.request_id = NextRequestId(),
                  .session_id = session_id_,
                  .drafts = drafts,
                  .temperature = sampling_.temperature,
                  .top_k = sampling_.top_k,
                  .top_p = sampling_.top_p,
                  .min_p = sampling_.min_p,
                  .seed = sampling_.seed,
                  .stop_token_ids = options_.stop_token_ids,
                  .rejection = options_.rejection,
                  .decode_on_empty = true};
  if (sampling_.grammar != nullptr) {
    call.grammar = sampling_.grammar->spec();
    call.answer_start = options_.answer_start;
  }
  if (held_ == 0) {
    SendWhole(context, &call);
    return call;
  }
  call.delta.assign(context.begin() + held_, context.end());
  call.expected_prefix = held_;
  call.prefix_hash = PrefixHash(context.first(held_));
  return call;
}

void Verifier::SendWhole(std::span<const int32_t> context, VerifyCall* call) {
  call->prompt.assign(context.begin(), context.end());
  call->delta.clear();
  call->expected_prefix = 0;
  call->prefix_hash = 0;
}

Result<VerifyReply> Verifier::Verify(std::span<const int32_t> context, const DraftForest& drafts) {
  VerifyCall call = MakeCall(context, drafts);
  Attempts attempts{.deadline = parts_.timer->Now() + SecondsToDuration(options_.timeout_seconds),
                    .backoff = Backoff(kFirstRetryPause, kLongestRetryPause)};
  for (;;) {
    ReportSent(call);
    Result<VerifyReply> reply = Try(call, attempts.deadline);
    if (reply.ok()) {
      TALON_RETURN_IF_ERROR(CheckAnswer(call, reply->answer));
      ReportReceived(*reply);
      held_ = static_cast<int>(context.size() + reply->answer.accepted.size());
      // SpecSplit's workers report no length. A different length: the next call sends everything.
      if (reply->answer.prefix_length != 0 && reply->answer.prefix_length != held_) held_ = 0;
      return reply;
    }
    ReportFailed(reply.status());
    TALON_RETURN_IF_ERROR(Recover(reply.status(), context, &call, &attempts));
  }
}

// An answer to another call counts as a failure.
Result<VerifyReply> Verifier::Try(const VerifyCall& call, RemoteClock::time_point deadline) {
  Result<VerifyReply> reply = parts_.target->Verify(call, deadline);
  if (!reply.ok() || reply->answer.request_id == call.request_id) return reply;
  return ResourceExhausted("an answer to call '{}' instead of '{}'", reply->answer.request_id,
                           call.request_id);
}

// OK: the call may be tried again.
Status Verifier::Recover(const Status& failure, std::span<const int32_t> context, VerifyCall* call,
                         Attempts* attempts) {
  const RecoveryAction action = RecoveryFor(failure);
  if (action == RecoveryAction::kResendAll && !attempts->resent) {
    attempts->resent = true;
    SendWhole(context, call);
    call->request_id = NextRequestId();
    ReportResend(failure);
    return OkStatus();
  }
  const bool again = action == RecoveryAction::kWait ||
                     (action == RecoveryAction::kTryAgain && ++attempts->tries < kMaxTries);
  if (action == RecoveryAction::kTimeOut && !attempts->unreachable.ok()) {  // this says more
    return DeadlineExceeded("target: {}", attempts->unreachable.message());
  }
  if (!again) return failure.WithContext("target");
  // A target that never answered is told by who opened the link.
  if (action == RecoveryAction::kWait && held_ > 0 && attempts->unreachable.ok()) {
    LogWarning("target worker: {}; trying for {:g} s", failure.message(), options_.timeout_seconds);
  }
  if (action == RecoveryAction::kWait) attempts->unreachable = failure;
  if (Pause(attempts->backoff.Next(), attempts->deadline)) return OkStatus();
  const bool stopped = parts_.cancelled && parts_.cancelled();
  return Status(stopped ? StatusCode::kCancelled : StatusCode::kDeadlineExceeded,
                "target: " + failure.message());
}

// False: cancelled, or the pause would pass the deadline.
bool Verifier::Pause(RemoteClock::duration pause, RemoteClock::time_point deadline) {
  if (parts_.cancelled && parts_.cancelled()) return false;
  if (parts_.timer->Now() + pause >= deadline) return false;
  parts_.timer->Sleep(pause);
  return !(parts_.cancelled && parts_.cancelled());
}

Status Verifier::CheckAnswer(const VerifyCall& call, const VerifyAnswer& answer) const {
  const int matched = MatchedLength(call.drafts, answer.accepted);
  if (matched != static_cast<int>(answer.accepted.size())) {
    return Internal("target: accepted token {} was not drafted", answer.accepted[matched]);
  }
  if (answer.accepted.empty() && !answer.correction) {
    return Internal("target: no token (a worker that does not decode without drafts?)");
  }
  const int32_t bonus = answer.correction.value_or(0);
  if (bonus < 0 || (options_.vocab_size > 0 && bonus >= options_.vocab_size)) {
    return Internal("target: token {}, vocabulary {}", bonus, options_.vocab_size);
  }
  return OkStatus();
}

void Verifier::End() {
  const Status status = parts_.target->EndSession(
      session_id_, parts_.timer->Now() + SecondsToDuration(kEndSessionTime));
  if (!status.ok()) LogInfo("session not ended: {}", status.message());
}

void Verifier::ReportSent(const VerifyCall& call) {
  sent_tokens_ = static_cast<int>(call.prompt.size() + call.delta.size());
  expected_prefix_ = call.expected_prefix;
  if (parts_.telemetry == nullptr) return;
  parts_.telemetry->AddEvent(RemoteEvent::kRpcRequestSent,
                             {{"method", "VerifyDrafts"},
                              {"delta_token_count", sent_tokens_},
                              {"expected_prefix_length", expected_prefix_},
                              {"tree_node_count", call.drafts.size()}});
}

void Verifier::ReportReceived(const VerifyReply& reply) {
  const CallReport& report = reply.report;
  if (parts_.telemetry == nullptr) return;
  parts_.telemetry->AddCall({.name = "verify",
                             .worker = "target",
                             .sent = report.sent,
                             .received = report.received,
                             .worker_wall_seconds = report.worker_seconds,
                             .worker_model_seconds = reply.answer.model_seconds});
  parts_.telemetry->AddEvent(RemoteEvent::kRpcResponseReceived,
                             {{"method", "VerifyDrafts"},
                              {"verify_rpc_ms", 1e3 * report.seconds()},
                              {"rtt_ms_measured", 1e3 * report.rtt_seconds()},
                              {"payload_bytes", report.bytes_sent + report.bytes_received},
                              {"proto_decode_ms", 1e3 * report.decode_seconds}});
}

void Verifier::ReportResend(const Status& failure) {
  ++full_resends_;
  if (parts_.metrics != nullptr) {
    parts_.metrics->Add(Counter::kRemoteDesyncs, 1, StatusCodeName(failure.code()));
  }
  if (parts_.telemetry == nullptr) return;
  parts_.telemetry->AddEvent(RemoteEvent::kVerifyRetryFullContext,
                             {{"code", StatusCodeName(failure.code())}});
}

void Verifier::ReportFailed(const Status& status) {
  LogEvent(LogLevel::kInfo, "target call failed",
           {{"code", StatusCodeName(status.code())}, {"message", status.message()}});
  if (parts_.telemetry == nullptr) return;
  parts_.telemetry->AddEvent(RemoteEvent::kRpcError,
                             {{"method", "VerifyDrafts"}, {"code", StatusCodeName(status.code())}});
}

}  // namespace talon
