// A pass as ops see it: its plan in device memory.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PASS_H_
#define TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PASS_H_

#include "compute/backend.h"
#include "compute/cuda/runtime/device_plan.h"

namespace talon::cuda {

class DevicePass : public Pass {
 public:
  const DevicePlan& plan() const { return plan_; }
  int scored_blocks() const { return scored_blocks_; }

 protected:
  DevicePlan plan_;
  int scored_blocks_ = 0;
};

// REQUIRES: the pass was made by the CUDA backend.
inline const DevicePass& AsDevicePass(const Pass& pass) {
  return static_cast<const DevicePass&>(pass);
}
inline const DevicePlan& PlanOf(const Pass& pass) { return AsDevicePass(pass).plan(); }

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PASS_H_
