// Observe: sampler, drafter, policy and the request's result learn what was committed.
#ifndef TALON_ENGINE_STEP_OBSERVE_H_
#define TALON_ENGINE_STEP_OBSERVE_H_

#include "compute/backend.h"
#include "engine/step/drafter_sync.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"

namespace talon {

class Observer {
 public:
  // `sync` is not owned.
  Observer(const StepParts& parts, const StepOptions& options, DrafterSync* sync)
      : parts_(parts), options_(options), sync_(sync) {}

  // `features`: the pass's, for the drafter.
  void Observe(StepBatch* batch, const MatrixView& features);

 private:
  void ObserveEntry(StepEntry* entry);
  void CountForced(const ActiveRequest& run, std::span<const int32_t> tokens);
  void KeepRemainder(StepEntry* entry);

  StepParts parts_;
  StepOptions options_;
  DrafterSync* sync_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_OBSERVE_H_
