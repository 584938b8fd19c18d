// A pass of the backends on the host: its plan, and the shape of the cache it reads.
#ifndef TALON_COMPUTE_HOST_HOST_PASS_H_
#define TALON_COMPUTE_HOST_HOST_PASS_H_

#include "compute/backend.h"
#include "compute/kv_view.h"
#include "compute/pass_plan.h"

namespace talon {

struct HostPass : Pass {
  PassPlan plan;
  KvShape shape;
};

// REQUIRES: the pass was made by a backend on the host.
inline const PassPlan& HostPlanOf(const Pass& pass) {
  return static_cast<const HostPass&>(pass).plan;
}

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_PASS_H_
