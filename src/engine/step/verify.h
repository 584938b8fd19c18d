// Verify: runs the pass, which stages K and V of tree rows, and lets the device choose tokens where
// it can.
#ifndef TALON_ENGINE_STEP_VERIFY_H_
#define TALON_ENGINE_STEP_VERIFY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/step/drafter_sync.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "engine/step/plan.h"
#include "model/decoder.h"

namespace talon {

struct VerifiedPass {
  ForwardOutput output;
  std::vector<int32_t> choices;  // [output rows], filled where the device chooses
};

class Verifier {
 public:
  // `partial` and `sync` are not owned.
  Verifier(const StepParts& parts, const StepOptions& options, PartialVerifier* partial,
           const DrafterSync* sync)
      : parts_(parts), options_(options), partial_(partial), sync_(sync) {}

  Status Verify(StepBatch* batch, const PlannedPass& pass, VerifiedPass* verified);
  // A pass over prompts alone is not waited for, because nothing of it is read. Where a prompt has
  // ended with it, this waits: the prompt's time is not to be the next step's.
  void WaitForPrompts(const StepBatch& batch);

 private:
  // The range of the profiler and the trace around it has the staged writes (on a GPU: their
  // launch).
  Status Forward(const StepBatch& batch, const PassPlan& plan, const KvView& kv,
                 ForwardOutput* output);
  // Drafts that the host does not know yet: their place in the pass before it runs, their tokens
  // after it.
  void PlaceDrafts(const StepBatch& batch, const PassPlan& plan, Pass* pass) const;
  void LearnDrafts(StepBatch* batch) const;
  // Leaves only what grammars allow in the logits that draws are made from.
  void MaskForbidden(const StepBatch& batch, MatrixView logits) const;
  void ChooseTokens(const StepBatch& batch, VerifiedPass* verified) const;

  StepParts parts_;
  StepOptions options_;
  PartialVerifier* partial_;
  const DrafterSync* sync_;
  bool in_flight_ = false;  // the last pass was not waited for
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_VERIFY_H_
