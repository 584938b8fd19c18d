// `talon bench remote`, in builds that have gRPC.
#ifndef TALON_APPS_BENCH_REMOTE_H_
#define TALON_APPS_BENCH_REMOTE_H_

#include "apps/commands.h"

namespace talon {

void AddBenchRemote(Command bench, Config* config, CommandBody* body);

}  // namespace talon

#endif  // TALON_APPS_BENCH_REMOTE_H_
