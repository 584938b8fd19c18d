// Propose: the tree of each sequence. Changes no sequence, sampler or text.
#ifndef TALON_ENGINE_STEP_PROPOSE_H_
#define TALON_ENGINE_STEP_PROPOSE_H_

#include <span>

#include "engine/active_request.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "spec/drafter.h"
#include "spec/policy/policy.h"

namespace talon {

class Proposer {
 public:
  // `partial` is not owned.
  Proposer(const StepParts& parts, const StepOptions& options, PartialVerifier* partial)
      : parts_(parts), options_(options), partial_(partial) {}

  void Propose(StepBatch* batch);

 private:
  struct Asked {
    StepEntry* entry = nullptr;
    DraftBudget budget;
  };
  void AskDrafter(std::span<const Asked> asked, StepBatch* batch);
  // Whether drafts can be verified before the host knows them: then the step waits once, for the
  // target's choices.
  bool RunsAhead() const;
  DraftBudget BudgetFor(const ActiveRequest& run, const StepShape& shape) const;
  // A tree that breaks a rule becomes [root].
  static void DropForbidden(StepEntry* entry);
  void CheckDrafts(StepEntry* entry) const;
  void Trim(const StepShape& shape, StepEntry* entry) const;

  StepParts parts_;
  StepOptions options_;
  PartialVerifier* partial_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PROPOSE_H_
