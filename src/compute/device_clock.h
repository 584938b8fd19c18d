// How long a device works, by stage, as its own events measure it.
#ifndef TALON_COMPUTE_DEVICE_CLOCK_H_
#define TALON_COMPUTE_DEVICE_CLOCK_H_

#include <cstdint>
#include <vector>

namespace talon {

// The time a device worked for a stage.
struct DeviceTime {
  const char* stage = "";
  double seconds = 0;
  int64_t batches = 0;  // ops queued together count as one
};

// Measures from Start to Read, which waits. Ops that are queued belong to the stage named last.
// Slows queueing down. This base measures nothing: backends whose ops run in place need no clock.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void Start() {}
  virtual void SetStage(const char* /*stage*/) {}
  virtual std::vector<DeviceTime> Read() { return {}; }
};

}  // namespace talon

#endif  // TALON_COMPUTE_DEVICE_CLOCK_H_
