// A clock that passes advance: what the engine's policies see, and what the table reports.
//
// With a seed the engine sees disturbed times, as on machines that others use, too: each pass takes
// a little more or less, few take much longer, and in slow spells all do. The same seed and the
// same passes give the same times.
#ifndef TALON_APPS_BENCH_MODELLED_MODELLED_CLOCK_H_
#define TALON_APPS_BENCH_MODELLED_MODELLED_CLOCK_H_

#include <random>

#include "base/clock.h"

namespace talon {

class ModelledClock : public Clock {
 public:
  // 0: nothing is disturbed.
  explicit ModelledClock(uint64_t noise_seed) : noisy_(noise_seed != 0), random_(noise_seed) {}

  // A pass takes so long on a machine that does nothing else.
  void Advance(double seconds);

  double Seconds() const override { return disturbed_; }
  // The time of the same passes without what disturbs them.
  const Clock& undisturbed() const { return undisturbed_; }

 private:
  class Sum : public Clock {
   public:
    double Seconds() const override { return seconds; }
    double seconds = 0;
  };
  double Disturbance();

  bool noisy_;
  std::mt19937_64 random_;
  Sum undisturbed_;
  double disturbed_ = 0;
  bool slow_ = false;
  double spell_ends_ = 0;
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_MODELLED_MODELLED_CLOCK_H_
