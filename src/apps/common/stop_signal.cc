#include "apps/common/stop_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "base/log.h"
#include "observe/trace.h"

namespace talon {
namespace {

volatile std::sig_atomic_t signals_seen = 0;
volatile std::sig_atomic_t last_signal = 0;
int signal_event = -1;  // an eventfd that the handler writes

void Wake() {
  const uint64_t one = 1;
  (void)!write(signal_event, &one, sizeof(one));
}

// Most of what ends a trace is not allowed here, so the second signal is left to a thread; the
// third is for the case that it cannot.
void OnSignal(int signal) {
  if (signals_seen >= 2) _exit(128 + signal);
  signals_seen = signals_seen + 1;
  last_signal = signal;
  Wake();
}

void WaitForOne() {
  uint64_t count = 0;
  while (read(signal_event, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

void AbortOnSecond() {
  WaitForOne();
  if (Tracer* tracer = ActiveTracer()) {
    if (const Status status = tracer->Close(); !status.ok()) LogWarning("{}", status.message());
  }
  _exit(128 + last_signal);
}

}  // namespace

void RequestStop() {
  if (signals_seen == 0) Wake();
}

Status CatchStopSignals() {
  signal_event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (signal_event < 0) return Unavailable("no eventfd for signals");
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return OkStatus();
}

void WaitForStopSignal(int grace_period_s) {
  WaitForOne();
  std::fprintf(stderr, "shutting down: waiting up to %d s for what runs; Ctrl-C again aborts\n",
               grace_period_s);
  std::thread(AbortOnSecond).detach();
}

}  // namespace talon
