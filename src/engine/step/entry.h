// One decoding sequence's way through the step: each stage fills its own part.
#ifndef TALON_ENGINE_STEP_ENTRY_H_
#define TALON_ENGINE_STEP_ENTRY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/active_request.h"
#include "engine/output_text.h"
#include "engine/request.h"
#include "engine/step/proposal.h"
#include "engine/step/shadow_verifier.h"
#include "kv/kv_cache.h"
#include "spec/policy/policy.h"
#include "spec/specpv/gate.h"
#include "spec/verify/accept.h"

namespace talon {

// Propose: where the drafts come from.
struct DraftOrigin {
  bool drafter_asked = false;  // in this step
  // The tree is an outline until the pass has run (Drafter::BeginTrees).
  bool is_outline = false;
  size_t request = 0;  // index of the drafter's request
};

// Propose: what the pass reads of the prefix (SpecPV).
struct ViewChoice {
  bool partial = false;
  bool select = false;                   // choose blocks for partial passes after the commit
  bool opened_tail = false;              // the tail region was taken for this pass
  std::optional<RefreshReason> refresh;  // why the pass is full
  Status tail;                           // not OK: no tail region could be opened for the pass
};

// Plan: the sequence's rows in the pass.
struct PlannedRows {
  int first = 0;
  int count = 0;
  int first_output = 0;     // first row of its logits
  int num_outputs = 0;      // rows of its logits
  int first_feature = -1;   // first row in the pass's features; -1: not captured
  int prefix_read = 0;      // tokens before the tree whose K/V the pass reads
  bool direct = false;      // written to reserved slots: no-write-on-reject is off, or fell back
  Reservation reservation;  // slots of direct rows
};

// Accept: the walk and what it emits.
struct Verdict {
  Acceptance acceptance;            // the walk over Proposal::judged()
  std::vector<int32_t> path;        // accepted nodes of the pass's tree
  std::vector<int32_t> draft_path;  // accepted nodes of the drafts; empty: the trunk was not kept
  std::vector<EmittedToken> emitted;
  std::optional<OutputText> text_after;  // the request's text with `emitted`
  FinishReason finish = FinishReason::kNone;
  bool broken = false;  // the walk ended at a row without any finite logit
};

// Commit: what became of it.
struct CommitResult {
  bool done = false;  // false: nothing of this step happened for the sequence
  int rows = 0;
  bool provisional = false;  // exact mode, partial: the emitted tokens stay inside the engine
  int confirmed = 0;         // exact mode: provisional tokens that the walk confirmed
};

struct StepEntry {
  explicit StepEntry(ActiveRequest* request)
      : run(request), proposal(request->sequence.tokens.back()) {}

  // The tokens above the judged tree, its root included. Valid until the commit.
  std::span<const int32_t> base() const { return proposal.Base(run->sequence.tokens); }
  BoundSampler sampler() const { return run->sampler.At(base()); }
  // The first position whose row the pass computes.
  int first_position() const {
    const Sequence& sequence = run->sequence;
    return sequence.committed_len + (view.partial ? sequence.tail_len : 0);
  }

  ActiveRequest* run;
  Proposal proposal;
  DraftOrigin origin;
  ViewChoice view;
  PlannedRows rows;
  ShadowRows shadow;  // Verify: a full pass over the same rows, where one was drawn
  Verdict verdict;
  CommitResult commit;
};

// A chunk of a prompt to compute in this step.
struct PromptChunk {
  ActiveRequest* run = nullptr;
  int tokens = 0;
};

// What the stages of a step hand on.
struct StepBatch {
  std::vector<StepEntry> entries;
  std::span<const PromptChunk> prompts;
  StepShape shape;
  bool runs_ahead = false;    // the drafts are verified before the host knows them
  bool lookups_only = false;  // the drafter was asked for nothing else
  double draft_seconds = 0;
  double verify_seconds = 0;
  double experts_touched = 0;  // Histogram::kExpertsTouched; 0: not counted
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_ENTRY_H_
