// A worker's server: one service, its calls run by a few handler threads, with health checking and
// reflection beside it.
//
// A service handles encoded messages (wire.h decodes them), so it is tested without a network, and
// hostile messages are refused before protobuf parses them. Calls that do not wait (Ping) do not
// queue behind those that do. Thread-safe.
#ifndef TALON_SERVE_GRPC_RPC_SERVER_H_
#define TALON_SERVE_GRPC_RPC_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "observe/metrics.h"
#include "serve/grpc/credentials.h"

namespace talon {

enum class WorkerKind { kTarget, kDraft };

struct RpcCall {
  std::string_view method;   // "VerifyDrafts"
  std::string_view message;  // encoded request, alive during the call
  // The client's deadline; time_point::max() if it set none.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::function<bool()>
      cancelled;  // the client cancelled or disconnected; callable from any thread
};

class RpcService {
 public:
  virtual ~RpcService() = default;
  // Methods that may wait for the engine; several run at once, each on a handler thread. Methods of
  // the service's proto only. The result is the encoded answer.
  virtual Result<std::string> Handle(const RpcCall& call) = 0;
  // Must not wait.
  virtual Result<std::string> Ping() = 0;
};

struct RpcServerOptions {
  WorkerKind kind = WorkerKind::kTarget;
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = any that is free
  int handler_threads = 4;
  int max_waiting = 256;                        // calls without a thread yet; more are refused
  int64_t max_held_bytes = int64_t{256} << 20;  // messages of all calls, likewise
  RpcSecurity security;
  Metrics* metrics = nullptr;  // times and bytes of calls; must outlive the server
};

class RpcServer {
 public:
  // Listens; `service` must outlive the server. Health is NOT_SERVING until SetServing(true).
  static Result<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                  RpcService* service);
  ~RpcServer();  // as Stop without a grace period
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const;
  std::string address() const;  // "127.0.0.1:50052"

  // What grpc.health.v1 answers for the whole server and for the service.
  void SetServing(bool serving);

  // New calls are answered UNAVAILABLE STOPPING and health NOT_SERVING; calls in flight continue.
  void Drain();
  // Drain, waits at most `grace` for calls in flight and their answers to be sent, then ends them
  // and the server.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_SERVER_H_
