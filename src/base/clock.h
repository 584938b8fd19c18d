// Clocks, and elapsed time.
#ifndef TALON_BASE_CLOCK_H_
#define TALON_BASE_CLOCK_H_

#include <chrono>

namespace talon {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since some moment, never fewer than before.
  virtual double Seconds() const = 0;
};

class SteadyClock : public Clock {
 public:
  double Seconds() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  static const Clock& Get() {
    static const SteadyClock clock;
    return clock;
  }
};

// Seconds since it was made, by a steady clock or one that must outlive it.
class Stopwatch {
 public:
  Stopwatch() : Stopwatch(SteadyClock::Get()) {}
  explicit Stopwatch(const Clock& clock) : clock_(&clock), start_(clock.Seconds()) {}

  double Seconds() const { return clock_->Seconds() - start_; }

 private:
  const Clock* clock_;
  double start_;
};

}  // namespace talon

#endif  // TALON_BASE_CLOCK_H_
