// A client's connection to a worker: bytes there and back. Reconnects by itself. Thread-safe.
#ifndef TALON_SERVE_GRPC_RPC_CHANNEL_H_
#define TALON_SERVE_GRPC_RPC_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>

#include "base/status.h"
#include "serve/grpc/credentials.h"

namespace talon {

// Full method names.
constexpr const char* kVerifyDraftsMethod = "/specsplit.TargetService/VerifyDrafts";
constexpr const char* kEndSessionMethod = "/specsplit.TargetService/EndSession";
constexpr const char* kTargetPingMethod = "/specsplit.TargetService/Ping";
constexpr const char* kGenerateDraftsMethod = "/specsplit.DraftService/GenerateDrafts";
constexpr const char* kDraftPingMethod = "/specsplit.DraftService/Ping";

// The metadata that a load balancer hashes to keep a session on one worker.
constexpr const char* kSessionIdHeader = "x-session-id";

struct RpcRequest {
  const char* method = nullptr;  // one of the names above
  std::string message;           // encoded by wire.h
  std::string session_id;        // sent as x-session-id; empty: not sent
  std::chrono::steady_clock::time_point deadline;
};

// A call in flight. Destroying it cancels it without waiting.
class RunningRpc {
 public:
  ~RunningRpc();
  RunningRpc(const RunningRpc&) = delete;
  RunningRpc& operator=(const RunningRpc&) = delete;

  // Whether Take would not wait.
  bool Ready() const;
  // Waits at most this long for the answer; true if Take would not wait.
  bool WaitFor(std::chrono::milliseconds time) const;
  // Waits for the encoded answer or a failure. REQUIRES: not taken before.
  Result<std::string> Take();
  // When the answer or failure came. REQUIRES: Ready().
  std::chrono::steady_clock::time_point ended() const;
  // Take then returns Cancelled soon, unless the answer came first. From any thread.
  void Cancel();

 private:
  friend class RpcChannel;
  struct State;
  explicit RunningRpc(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  // shared with gRPC's thread that completes the call
};

class RpcChannel {
 public:
  // Checks address and credentials; connects when first used.
  static Result<std::unique_ptr<RpcChannel>> Open(const std::string& address,
                                                  const RpcSecurity& security);
  ~RpcChannel();
  RpcChannel(const RpcChannel&) = delete;
  RpcChannel& operator=(const RpcChannel&) = delete;

  // Never waits. A worker that cannot be reached is UNAVAILABLE soon; the connection is tried again
  // in the background.
  std::unique_ptr<RunningRpc> Begin(const RpcRequest& request);
  // Waits until the answer, a failure or the deadline.
  Result<std::string> Call(const RpcRequest& request) { return Begin(request)->Take(); }

  const std::string& address() const { return address_; }

 private:
  class Impl;
  RpcChannel(std::string address, std::unique_ptr<Impl> impl);
  const std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_CHANNEL_H_
