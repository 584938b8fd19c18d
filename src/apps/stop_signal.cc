#include "apps/stop_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace talon {
namespace {

volatile std::sig_atomic_t signals_seen = 0;
int signal_event = -1;  // an eventfd that the handler writes

void OnSignal(int signal) {
  if (signals_seen != 0) _exit(128 + signal);
  signals_seen = 1;
  const uint64_t one = 1;
  (void)!write(signal_event, &one, sizeof(one));
}

}  // namespace

Status CatchStopSignals() {
  signal_event = eventfd(0, EFD_CLOEXEC);
  if (signal_event < 0) return Unavailable("no eventfd for signals");
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return OkStatus();
}

void WaitForStopSignal() {
  uint64_t count = 0;
  while (read(signal_event, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace talon
