#include "apps/bench/modelled/modelled_clock.h"

#include <cmath>

namespace talon {
namespace {

// As seen on shared virtual machines.
constexpr double kSpread = 0.05;  // standard deviation of the logarithm of a pass's time
constexpr double kSlower = 1.6;   // in slow spells
constexpr double kSlowSeconds = 1;
constexpr double kUsualSeconds = 2;
constexpr double kOutlierShare = 0.01;
constexpr double kOutlier = 3;

}  // namespace

void ModelledClock::Advance(double seconds) {
  undisturbed_.seconds += seconds;
  disturbed_ += noisy_ ? seconds * Disturbance() : seconds;
}

double ModelledClock::Disturbance() {
  while (disturbed_ >= spell_ends_) {
    slow_ = !slow_;
    std::exponential_distribution<double> length(1 / (slow_ ? kSlowSeconds : kUsualSeconds));
    spell_ends_ += length(random_);
  }
  double factor = std::lognormal_distribution<double>(0, kSpread)(random_);
  if (std::bernoulli_distribution(kOutlierShare)(random_)) factor *= kOutlier;
  return slow_ ? kSlower * factor : factor;
}

}  // namespace talon
