// Links over gRPC. Thread-safe.
#ifndef TALON_SERVE_GRPC_RPC_LINKS_H_
#define TALON_SERVE_GRPC_RPC_LINKS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "observe/metrics.h"
#include "remote/links.h"
#include "serve/grpc/credentials.h"
#include "serve/grpc/rpc_channel.h"
#include "serve/grpc/wire.h"

namespace talon {

struct RpcLinkOptions {
  std::string address;  // HOST:PORT
  RpcSecurity security;
  WireLimits limits;  // limits of answers
  // Added to every answer, to simulate a distant worker.
  std::chrono::microseconds simulated_rtt{0};
  Metrics* metrics = nullptr;  // null: nothing is counted
  // Polled while a call waits for its answer; true ends the call as Cancelled. Empty: never.
  std::function<bool()> cancelled;
};

class RpcTargetLink : public TargetLink {
 public:
  static Result<std::unique_ptr<RpcTargetLink>> Open(const RpcLinkOptions& options);

  Result<VerifyReply> Verify(const VerifyCall& call, RemoteClock::time_point deadline) override;
  Status EndSession(const std::string& session_id, RemoteClock::time_point deadline) override;
  Result<PingAnswer> Ping(RemoteClock::time_point deadline) override;

 private:
  RpcTargetLink(RpcLinkOptions options, std::unique_ptr<RpcChannel> channel)
      : options_(std::move(options)), channel_(std::move(channel)) {}
  const RpcLinkOptions options_;
  const std::unique_ptr<RpcChannel> channel_;
};

class RpcDraftLink : public DraftLink {
 public:
  static Result<std::unique_ptr<RpcDraftLink>> Open(const RpcLinkOptions& options);

  std::unique_ptr<RunningDraft> Begin(const DraftCall& call,
                                      RemoteClock::time_point deadline) override;
  Result<PingAnswer> Ping(RemoteClock::time_point deadline) override;

 private:
  RpcDraftLink(RpcLinkOptions options, std::unique_ptr<RpcChannel> channel)
      : options_(std::move(options)), channel_(std::move(channel)) {}
  const RpcLinkOptions options_;
  const std::unique_ptr<RpcChannel> channel_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_LINKS_H_
