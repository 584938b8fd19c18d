// Elapsed time.
#ifndef TALON_BASE_CLOCK_H_
#define TALON_BASE_CLOCK_H_

#include <chrono>

namespace talon {

// Seconds since it was made, by the steady clock.
class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace talon

#endif  // TALON_BASE_CLOCK_H_
