// How a server is asked to end: SIGINT or SIGTERM.
#ifndef TALON_APPS_COMMON_STOP_SIGNAL_H_
#define TALON_APPS_COMMON_STOP_SIGNAL_H_

#include "base/status.h"

namespace talon {

// From now on SIGINT and SIGTERM end WaitForStopSignal().
Status CatchStopSignals();
// The same from inside, for an engine that cannot go on. Does nothing after a signal. Any thread.
void RequestStop();
// Waits for one and says that what runs has `grace_period_s` seconds to finish. A second one then
// ends the process at once; only a trace is completed before.
void WaitForStopSignal(int grace_period_s);

}  // namespace talon

#endif  // TALON_APPS_COMMON_STOP_SIGNAL_H_
