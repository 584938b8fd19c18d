// Where the time of a step goes: on the host and on the device, stage by stage.
#ifndef TALON_APPS_BENCH_STAGES_H_
#define TALON_APPS_BENCH_STAGES_H_

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "compute/backend.h"
#include "engine/engine.h"

namespace talon {

struct StageTimes {
  struct Stage {
    std::string name;
    double host_seconds = 0;
    double device_seconds = 0;
  };
  std::vector<Stage> stages;  // in the order in which they first came
  double seconds = 0;         // all steps together
  int64_t steps = 0;

  double DeviceSeconds() const;
  // Share of all steps' time in which the device was idle; -1: the device has no clock.
  double IdleShare() const;
  Json ToJson() const;
  std::string ToString() const;  // a table, microseconds a step
};

// Times steps of an engine until they are `most_steps` or it has no more work.
StageTimes TimeSteps(Backend* backend, Engine* engine, int64_t most_steps);

// Times the steps that only decode of one request more, which is run to its end.
Result<StageTimes> MeasureStages(Backend* backend, Engine* engine, GenerateRequest request);

}  // namespace talon

#endif  // TALON_APPS_BENCH_STAGES_H_
