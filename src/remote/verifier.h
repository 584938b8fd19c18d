// The client's side of a target session: sends trees and makes sure that each is verified exactly
// once, whatever fails.
//
// A call whose answer is lost is repeated with the same request id, so that nothing is verified
// twice. A target that has evicted the session, or disagrees on its length or hash, gets the whole
// context once. An unavailable target is retried until the round's deadline. One thread.
#ifndef TALON_REMOTE_VERIFIER_H_
#define TALON_REMOTE_VERIFIER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/remote_calls.h"
#include "model/sampling/sampling_params.h"
#include "observe/metrics.h"
#include "remote/links.h"
#include "remote/remote_timer.h"
#include "remote/telemetry.h"

namespace talon {

// What the client does after a failed call.
enum class RecoveryAction {
  kGiveUp,     // the call itself is wrong
  kResendAll,  // the session is gone: the whole context again, once
  kTimeOut,    // there is no time left
  kTryAgain,   // there is no room now: a few tries
  kWait,       // the worker is unavailable or not ready: until the deadline
};
RecoveryAction RecoveryFor(const Status& status);

struct VerifierOptions {
  double timeout_seconds = 30;  // timeout of a round, retries included
  bool rejection = false;
  std::vector<int32_t> stop_token_ids;
  int vocab_size = 0;    // 0: not known
  int answer_start = 0;  // tokens of the prompt
};

class Verifier {
 public:
  struct Parts {  // not owned; null: none
    TargetLink* target = nullptr;
    RemoteTimer* timer = nullptr;
    Telemetry* telemetry = nullptr;
    Metrics* metrics = nullptr;
    std::function<bool()> cancelled;  // empty: never
  };
  Verifier(Parts parts, VerifierOptions options, std::string session_id,
           const SamplingParams& sampling);

  // Verifies `drafts` after `context`, which extends the last call's by what was confirmed since.
  // DeadlineExceeded: the target did not answer in time. Cancelled: `cancelled` returned true. The
  // answer is consistent with the call: it accepts drafts only, and has a token or has ended.
  Result<VerifyReply> Verify(std::span<const int32_t> context, const DraftForest& drafts);

  // Best effort.
  void End();

  int sent_tokens() const { return sent_tokens_; }          // context tokens in the last call
  int expected_prefix() const { return expected_prefix_; }  // in the last call
  int full_resends() const { return full_resends_; }

 private:
  // The retries of one round.
  struct Attempts {
    RemoteClock::time_point deadline;
    Backoff backoff;
    int tries = 0;  // tries that failed for lack of room
    bool resent = false;
    Status unreachable;  // why the target could not be reached, if it could not
  };

  VerifyCall MakeCall(std::span<const int32_t> context, const DraftForest& drafts);
  void SendWhole(std::span<const int32_t> context, VerifyCall* call);
  std::string NextRequestId();
  Result<VerifyReply> Try(const VerifyCall& call, RemoteClock::time_point deadline);
  Status Recover(const Status& failure, std::span<const int32_t> context, VerifyCall* call,
                 Attempts* attempts);
  Status CheckAnswer(const VerifyCall& call, const VerifyAnswer& answer) const;
  bool Pause(RemoteClock::duration pause, RemoteClock::time_point deadline);
  void ReportSent(const VerifyCall& call);
  void ReportReceived(const VerifyReply& reply);
  void ReportResend(const Status& failure);
  void ReportFailed(const Status& status);

  Parts parts_;
  VerifierOptions options_;
  const std::string session_id_;
  const SamplingParams sampling_;
  int64_t next_call_ = 1;
  int held_ = 0;  // tokens of the context that the target holds; 0: send all
  int sent_tokens_ = 0;
  int expected_prefix_ = 0;
  int full_resends_ = 0;
};

}  // namespace talon

#endif  // TALON_REMOTE_VERIFIER_H_
