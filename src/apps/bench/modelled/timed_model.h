// Models for measurements of what the engine decides: timed by the machine's clock, which other
// work on it disturbs, or by a modelled one.
#ifndef TALON_APPS_BENCH_MODELLED_TIMED_MODEL_H_
#define TALON_APPS_BENCH_MODELLED_TIMED_MODEL_H_

#include <memory>
#include <string>

#include "apps/commands.h"
#include "base/clock.h"
#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"

namespace talon {

struct ClockOptions {
  std::string costs;   // a file of MachineCosts; empty: the machine's clock
  int noise_seed = 0;  // ModelledClock's

  bool modelled() const { return !costs.empty(); }
};

// Adds --costs and --noise-seed.
void AddClockOptions(Command command, ClockOptions* options);

struct TimedModel {
  std::unique_ptr<LoadedModel> model;
  const Clock* clock = nullptr;  // by which to report; engines may see a disturbed one
};

// As LoadTarget. `computes` false: with a modelled clock no pass is run.
Result<TimedModel> LoadTimed(const Config& config, const std::string& shape,
                             const ClockOptions& options, bool computes = true);

}  // namespace talon

#endif  // TALON_APPS_BENCH_MODELLED_TIMED_MODEL_H_
