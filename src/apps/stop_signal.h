// How a server is asked to end: SIGINT or SIGTERM.
#ifndef TALON_APPS_STOP_SIGNAL_H_
#define TALON_APPS_STOP_SIGNAL_H_

#include "base/status.h"

namespace talon {

// From now on SIGINT and SIGTERM end WaitForStopSignal(), and a second one the process.
Status CatchStopSignals();
void WaitForStopSignal();

}  // namespace talon

#endif  // TALON_APPS_STOP_SIGNAL_H_
