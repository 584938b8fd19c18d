// The clock of remote generation, replaced in tests.
#ifndef TALON_REMOTE_REMOTE_TIMER_H_
#define TALON_REMOTE_REMOTE_TIMER_H_

#include <algorithm>
#include <chrono>
#include <thread>

#include "remote/links.h"

namespace talon {

class RemoteTimer {
 public:
  virtual ~RemoteTimer() = default;
  virtual RemoteClock::time_point Now() { return RemoteClock::now(); }
  virtual void Sleep(RemoteClock::duration time) { std::this_thread::sleep_for(time); }
};

inline double SecondsBetween(RemoteClock::time_point from, RemoteClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

inline RemoteClock::duration SecondsToDuration(double seconds) {
  return std::chrono::duration_cast<RemoteClock::duration>(std::chrono::duration<double>(seconds));
}

// Pauses between tries: each twice as long as the one before.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds longest)
      : first_(first), longest_(longest), next_(first) {}
  std::chrono::milliseconds Next() {
    const auto pause = next_;
    next_ = std::min(2 * next_, longest_);
    return pause;
  }
  void Reset() { next_ = first_; }

 private:
  std::chrono::milliseconds first_;
  std::chrono::milliseconds longest_;
  std::chrono::milliseconds next_;
};

}  // namespace talon

#endif  // TALON_REMOTE_REMOTE_TIMER_H_
