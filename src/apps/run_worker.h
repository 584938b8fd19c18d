// A worker's process from its open port to its end, in builds that have gRPC.
#ifndef TALON_APPS_RUN_WORKER_H_
#define TALON_APPS_RUN_WORKER_H_

#include <chrono>
#include <functional>
#include <string>

#include "base/status.h"
#include "observe/metrics.h"
#include "serve/grpc/rpc_server.h"
#include "setup/config.h"

namespace talon {

struct WorkerProcess {
  WorkerKind kind = WorkerKind::kTarget;
  WorkerConfig config;
  RpcService* service = nullptr;  // not owned
  Metrics* metrics = nullptr;     // not owned
  // Loads what the service needs, which says LOADING until then. What to announce.
  std::function<Result<std::string>()> load;
  // Lets calls on their way finish, for so long at most.
  std::function<void(std::chrono::milliseconds)> finish;
  // Whether its engine could still serve when it ended.
  std::function<Status()> health = [] { return OkStatus(); };
};

// Opens the port, loads, serves until SIGINT or SIGTERM, lets calls finish. The exit code.
Result<int> RunWorker(const WorkerProcess& worker);

}  // namespace talon

#endif  // TALON_APPS_RUN_WORKER_H_
