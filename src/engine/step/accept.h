// Accept: walks each sequence's tree with the target's choices. Changes no sequence.
#ifndef TALON_ENGINE_STEP_ACCEPT_H_
#define TALON_ENGINE_STEP_ACCEPT_H_

#include "compute/backend.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/verify.h"
#include "model/sampling/sampler.h"

namespace talon {

// Whether the target's choices for such a request are made on the device, for all rows at once.
bool DeviceChooses(const BoundSampler& sampler, const StepOptions& options, Backend* backend);
// Whether the device must know first what the grammar allows: before draws, for every row. Of the
// best tokens few are forbidden; those rows are looked at again.
bool NeedsMasks(const BoundSampler& sampler);

class Acceptor {
 public:
  Acceptor(const StepParts& parts, const StepOptions& options) : parts_(parts), options_(options) {}

  void Accept(StepBatch* batch, const VerifiedPass& verified) const;

 private:
  void Walk(StepEntry* entry, const VerifiedPass& verified) const;
  // Tokens in emission order up to the first that ends the request; later ones never happened.
  void Emit(StepEntry* entry) const;
  static FinishReason EndWithoutToken(const StepEntry& entry);

  StepParts parts_;
  StepOptions options_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_ACCEPT_H_
