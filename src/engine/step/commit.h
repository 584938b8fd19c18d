// Commit: what was accepted becomes part of the sequences. The first stage that changes them.
#ifndef TALON_ENGINE_STEP_COMMIT_H_
#define TALON_ENGINE_STEP_COMMIT_H_

#include <cstddef>

#include "base/status.h"
#include "engine/step/drafter_sync.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "engine/step/plan.h"

namespace talon {

class Committer {
 public:
  // `partial` and `sync` are not owned.
  Committer(const StepParts& parts, const StepOptions& options, PartialVerifier* partial,
            DrafterSync* sync)
      : parts_(parts), options_(options), partial_(partial), sync_(sync) {}

  void Commit(StepBatch* batch, PlannedPass* pass);

 private:
  void CommitEntry(StepEntry* entry);
  // How many nodes of the accepted path become part of the sequence.
  static size_t RowsToCommit(const StepEntry& entry);
  // Copies rows to blocks or, under a partial view, to the tail.
  Status CommitRows(StepEntry* entry, size_t count);
  // Nothing of this step happened for the sequence: the next one verifies [root], which is not
  // staged.
  void FallBack(StepEntry* entry, const Status& why);
  void AppendTokens(StepEntry* entry);
  void CommitPrompts(const StepBatch& batch, PlannedPass* pass);

  StepParts parts_;
  StepOptions options_;
  PartialVerifier* partial_;
  DrafterSync* sync_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_COMMIT_H_
