// The interfaces to a target and to a draft worker, in plain data, independent of the transport
// (serve/grpc/rpc_links.h: gRPC; fake_links.h: scripts for tests).
//
// A link makes one attempt per call and returns its failure unchanged; retries are decided above
// (verifier.h, draft_client.h).
#ifndef TALON_REMOTE_LINKS_H_
#define TALON_REMOTE_LINKS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/remote_calls.h"

namespace talon {

using RemoteClock = std::chrono::steady_clock;

// Times and sizes of an answered call.
struct CallReport {
  RemoteClock::time_point sent;
  RemoteClock::time_point received;
  double worker_seconds = 0;  // between request and answer at the worker; 0: not reported
  double decode_seconds = 0;  // time to decode the answer's bytes
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;

  double seconds() const { return std::chrono::duration<double>(received - sent).count(); }
  // The share of the network.
  double rtt_seconds() const {
    return worker_seconds > 0 && worker_seconds < seconds() ? seconds() - worker_seconds : 0;
  }
};

struct VerifyReply {
  VerifyAnswer answer;
  CallReport report;
};

struct DraftReply {
  DraftAnswer answer;
  CallReport report;
};

class TargetLink {
 public:
  virtual ~TargetLink() = default;
  // Blocks until the answer, a failure or the deadline.
  virtual Result<VerifyReply> Verify(const VerifyCall& call, RemoteClock::time_point deadline) = 0;
  // Frees what the worker keeps for the session; best effort.
  virtual Status EndSession(const std::string& session_id, RemoteClock::time_point deadline) = 0;
  virtual Result<PingAnswer> Ping(RemoteClock::time_point deadline) = 0;
};

// A draft call in flight. Destroying it cancels it.
class RunningDraft {
 public:
  virtual ~RunningDraft() = default;
  // Whether Take would not wait.
  virtual bool Ready() = 0;
  // Blocks until the answer or a failure; once.
  virtual Result<DraftReply> Take() = 0;
};

class DraftLink {
 public:
  virtual ~DraftLink() = default;
  // Never blocks; failures come out of the running call.
  virtual std::unique_ptr<RunningDraft> Begin(const DraftCall& call,
                                              RemoteClock::time_point deadline) = 0;
  virtual Result<PingAnswer> Ping(RemoteClock::time_point deadline) = 0;
};

}  // namespace talon

#endif  // TALON_REMOTE_LINKS_H_
