// The HTTP server from start to end, in builds that have it.
#ifndef TALON_APPS_RUN_SERVER_H_
#define TALON_APPS_RUN_SERVER_H_

#include "base/status.h"
#include "setup/config.h"

namespace talon {

// Loads the model, serves until SIGINT or SIGTERM, lets requests finish. The exit code.
Result<int> RunServer(Config config);

}  // namespace talon

#endif  // TALON_APPS_RUN_SERVER_H_
