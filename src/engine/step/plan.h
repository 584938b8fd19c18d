// Plan: the trees and prompt chunks of a step become one pass.
#ifndef TALON_ENGINE_STEP_PLAN_H_
#define TALON_ENGINE_STEP_PLAN_H_

#include <span>
#include <vector>

#include "base/status.h"
#include "engine/step/drafter_sync.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/partial_verifier.h"
#include "kv/kv_cache.h"
#include "spec/plan.h"

namespace talon {

struct PlannedPass {
  PassBuilder builder;
  bool reads_views = false;  // it reads copies of partial views, and no other blocks
  std::vector<Reservation> prompt_reservations;  // one for each prompt chunk
  std::vector<int> prompt_features;              // one for each, as PlannedRows::first_feature
  std::vector<int> prompt_first_output;          // one for each, its first output row
};

class Planner {
 public:
  // `partial` and `sync` are not owned.
  Planner(const StepParts& parts, const StepOptions& options, PartialVerifier* partial,
          DrafterSync* sync)
      : parts_(parts), options_(options), partial_(partial), sync_(sync) {}

  // On failure the reservations made so far are in `batch` and `pass`: Cancel gives them back.
  Status Plan(StepBatch* batch, PlannedPass* pass);
  void Cancel(StepBatch* batch, PlannedPass* pass);

 private:
  // `kept_blocks` are for the roots of entries that are planned later.
  void PlanEntry(StepEntry* entry, int kept_blocks, PlannedPass* pass);
  void PlanPrompt(const PromptChunk& prompt, const Reservation& reservation, PlannedPass* pass);
  void ReserveTree(StepEntry* entry, int kept_blocks);

  StepParts parts_;
  StepOptions options_;
  PartialVerifier* partial_;
  DrafterSync* sync_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PLAN_H_
