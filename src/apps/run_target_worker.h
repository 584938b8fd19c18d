// The target worker from start to end, in builds that have gRPC.
#ifndef TALON_APPS_RUN_TARGET_WORKER_H_
#define TALON_APPS_RUN_TARGET_WORKER_H_

#include "base/status.h"
#include "setup/config.h"

namespace talon {

// Opens the port, loads the model, serves until SIGINT or SIGTERM. The exit code.
Result<int> RunTargetWorker(Config config);

}  // namespace talon

#endif  // TALON_APPS_RUN_TARGET_WORKER_H_
