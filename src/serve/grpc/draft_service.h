// The draft worker's service: DraftSessions behind the wire. Thread-safe.
#ifndef TALON_SERVE_GRPC_DRAFT_SERVICE_H_
#define TALON_SERVE_GRPC_DRAFT_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "observe/metrics.h"
#include "remote/draft_sessions.h"
#include "serve/grpc/rpc_server.h"
#include "serve/grpc/wire.h"

namespace talon {

struct DraftServiceOptions {
  std::string model_name;  // as Ping says it
  std::string device;
  WireLimits limits;
  Metrics* metrics = nullptr;  // not owned; null: nothing is counted
};

class DraftService : public RpcService {
 public:
  // Answers LOADING until it has sessions.
  explicit DraftService(DraftServiceOptions options) : options_(std::move(options)) {}

  // From now on `sessions` answers; it must outlive the service's calls.
  void Serve(DraftSessions* sessions, int vocab_size);

  Result<std::string> Handle(const RpcCall& call) override;
  Result<std::string> Ping() override;

 private:
  const DraftServiceOptions options_;
  std::atomic<int> vocab_size_{0};  // 0: any
  std::atomic<DraftSessions*> sessions_{nullptr};
  std::atomic<int64_t> next_span_{1};
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_DRAFT_SERVICE_H_
