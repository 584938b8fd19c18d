#include "engine/step/plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/step/fallback.h"
#include "observe/stage_range.h"

namespace talon {

Status Planner::Plan(StepBatch* batch, PlannedPass* pass) {
  const StageRange range("Plan");
  pass->builder.Reset();
  partial_->BeginPass();
  pass->reads_views = batch->prompts.empty() && !batch->entries.empty() &&
                      std::ranges::all_of(batch->entries, [](const StepEntry& entry) {
                        return entry.view.partial && PartialVerifier::HasCopy(*entry.run);
                      });
  // Prompts reserve first: a tree that finds no room does without its drafts.
  pass->prompt_reservations.clear();
  pass->prompt_first_output.clear();
  for (const PromptChunk& prompt : batch->prompts) {
    TALON_ASSIGN_OR_RETURN(Reservation reservation,
                           parts_.kv->Reserve(prompt.run->sequence, prompt.tokens));
    pass->prompt_reservations.push_back(std::move(reservation));
  }
  const auto root_blocks = [this](const StepEntry& entry) {
    const Sequence& sequence = entry.run->sequence;
    return parts_.kv->BlocksNeeded(sequence, sequence.tail_len + 1);
  };
  int kept_blocks = 0;
  for (const StepEntry& entry : batch->entries) kept_blocks += root_blocks(entry);
  for (StepEntry& entry : batch->entries) {
    kept_blocks -= root_blocks(entry);
    PlanEntry(&entry, kept_blocks, pass);
  }
  pass->prompt_features.clear();
  for (size_t i = 0; i < batch->prompts.size(); ++i) {
    PlanPrompt(batch->prompts[i], pass->prompt_reservations[i], pass);
  }
  return OkStatus();
}

void Planner::PlanEntry(StepEntry* entry, int kept_blocks, PlannedPass* pass) {
  const ActiveRequest& run = *entry->run;
  const Proposal& proposal = entry->proposal;
  PassBuilder& builder = pass->builder;
  PlannedRows& rows = entry->rows;
  rows.first_output = static_cast<int>(builder.plan().output_rows.size());
  if (entry->view.partial) {
    rows.first =
        builder.AddPartialTree(run.sequence, proposal.tree(),
                               pass->reads_views ? partial_->CopyOf(run) : partial_->ViewOf(run));
    rows.prefix_read = run.partial.lists->visible_tokens + run.sequence.tail_len;
  } else {
    rows.direct = !options_.nwor || run.plain_next;
    if (rows.direct) ReserveTree(entry, kept_blocks);
    rows.first = builder.AddTree(run.sequence, proposal.tree(), rows.reservation.slots,
                                 proposal.first_judged());
    rows.prefix_read = run.sequence.committed_len;
  }
  rows.count = proposal.tree().size();
  rows.num_outputs = proposal.judged().size();
  if (entry->view.select) {
    partial_->RequestScores(run, proposal.RootRow(rows.first), rows.first + rows.count,
                            proposal.LongestPath(), &builder);
  }
  if (parts_.policy->Follows()) {
    rows.first_feature = sync_->CaptureRows(run, rows.first, rows.count, &builder);
  }
}

void Planner::PlanPrompt(const PromptChunk& prompt, const Reservation& reservation,
                         PlannedPass* pass) {
  sync_->Introduce(prompt.run);
  pass->prompt_first_output.push_back(static_cast<int>(pass->builder.plan().output_rows.size()));
  const int first_row = pass->builder.AddPrompt(prompt.run->sequence, reservation,
                                                prompt.run->reads_of(prompt.tokens));
  pass->prompt_features.push_back(
      sync_->CaptureRows(*prompt.run, first_row, prompt.tokens, &pass->builder));
}

void Planner::ReserveTree(StepEntry* entry, int kept_blocks) {
  const Sequence& sequence = entry->run->sequence;
  Proposal& proposal = entry->proposal;
  const int needed = parts_.kv->BlocksNeeded(sequence, proposal.tree().size());
  if (const int free = parts_.kv->pool().free_blocks() - kept_blocks;
      proposal.num_drafts() > 0 && needed > free) {
    ReportStepFallback({Counter::kNworFallback, "nwor", "no_blocks"}, sequence.id,
                       ResourceExhausted("kv: tree needs {} blocks, {} free", needed, free),
                       parts_.metrics);
    proposal.DropDrafts();
  }
  auto reservation = parts_.kv->Reserve(sequence, proposal.tree().size());
  TALON_CHECK(reservation.ok(), "the scheduler keeps room for every root");
  entry->rows.reservation = std::move(*reservation);
}

void Planner::Cancel(StepBatch* batch, PlannedPass* pass) {
  for (StepEntry& entry : batch->entries) {
    parts_.kv->Cancel(std::move(entry.rows.reservation));
    partial_->Abandon(&entry);
  }
  for (Reservation& reservation : pass->prompt_reservations) {
    parts_.kv->Cancel(std::move(reservation));
  }
}

}  // namespace talon
