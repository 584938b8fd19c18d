// What decides whether a draft is worth its time.
#ifndef TALON_SPEC_STEP_PRICES_H_
#define TALON_SPEC_STEP_PRICES_H_

namespace talon {

// What things cost the engine now, in seconds.
struct StepPrices {
  double token = 0;  // 0: not known, or time does not matter
  double row = 0;    // another row of a tree that is verified
};

}  // namespace talon

#endif  // TALON_SPEC_STEP_PRICES_H_
