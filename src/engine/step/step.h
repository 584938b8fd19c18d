// The step: Propose -> Plan -> Stage -> Verify -> Accept -> Commit -> Observe.
//
// Plain decoding is the same step with trees of one node, so there is one code path. Prompt chunks
// ride along in the same pass. Each stage is an object of its own and fills its part of the entries
// (entry.h). Commit is the first one that changes sequences: nothing of a step is visible to a
// request unless its commit succeeded, and a failed pass changes nothing.
#ifndef TALON_ENGINE_STEP_STEP_H_
#define TALON_ENGINE_STEP_STEP_H_

#include <span>

#include "base/status.h"
#include "engine/active_request.h"
#include "engine/step/accept.h"
#include "engine/step/commit.h"
#include "engine/step/drafter_sync.h"
#include "engine/step/entry.h"
#include "engine/step/meter.h"
#include "engine/step/observe.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "engine/step/plan.h"
#include "engine/step/prompt_output_reader.h"
#include "engine/step/propose.h"
#include "engine/step/verify.h"

namespace talon {

class Step {
 public:
  using Parts = StepParts;
  Step(const Parts& parts, const StepOptions& options);
  Step(const Step&) = delete;  // its stages point to each other
  Step& operator=(const Step&) = delete;

  // One step for all of `decoding` (each with only its root left to compute) plus prompt chunks.
  // A failure concerns the whole pass and changes no sequence, sampler or text; failures of single
  // sequences end in fallbacks. New tokens are appended to each request's result; `finish` is set
  // where it ends.
  Status Run(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts);

  // The request gives up its K/V for now: forgets all that belongs to it but its tokens.
  void Suspend(ActiveRequest* run);

 private:
  void Begin(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts);
  // The step as a sentence: propose, plan, stage, verify, accept, commit, observe.
  Status RunStages(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts);
  // Takes the pass's staging rows. Where there are none to be had, reports it and plans plain steps
  // for all sequences instead: nothing is computed yet.
  Status Stage(std::span<ActiveRequest* const> decoding);
  void Abandon();

  StepParts parts_;
  DrafterSync sync_;
  PartialVerifier partial_;
  Proposer proposer_;
  Planner planner_;
  Verifier verifier_;
  PromptOutputReader reader_;
  Acceptor acceptor_;
  Committer committer_;
  Observer observer_;
  StepMeter meter_;
  // The step under way.
  StepBatch batch_;
  PlannedPass pass_;
  VerifiedPass verified_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_STEP_H_
