// The target worker's service: a SessionThread behind the wire. Thread-safe.
#ifndef TALON_SERVE_GRPC_TARGET_SERVICE_H_
#define TALON_SERVE_GRPC_TARGET_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/sessions/session_thread.h"
#include "serve/grpc/rpc_server.h"
#include "serve/grpc/wire.h"

namespace talon {

struct TargetServiceOptions {
  std::string model_name;  // as Ping says it
  std::string device;
  WireLimits limits;  // the vocabulary is the model's
};

class TargetService : public RpcService {
 public:
  // Answers LOADING until it has sessions.
  explicit TargetService(TargetServiceOptions options) : options_(std::move(options)) {}

  // From now on `sessions` answers; it must outlive the service's calls.
  void Serve(SessionThread* sessions) { sessions_ = sessions; }

  Result<std::string> Handle(const RpcCall& call) override;
  Result<std::string> Ping() override;

 private:
  Result<std::string> VerifyDrafts(const RpcCall& call, SessionThread* sessions);
  Result<std::string> EndSession(const RpcCall& call, SessionThread* sessions) const;
  int vocab_size() const;

  const TargetServiceOptions options_;
  std::atomic<SessionThread*> sessions_{nullptr};
  std::atomic<int64_t> next_span_{1};
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_TARGET_SERVICE_H_
