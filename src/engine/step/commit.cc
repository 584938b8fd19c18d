#include "engine/step/commit.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/step/fallback.h"
#include "observe/stage_range.h"

namespace talon {

void Committer::Commit(StepBatch* batch, PlannedPass* pass) {
  const StageRange range(options_.nwor ? "NWOR_commit" : "Commit");
  for (StepEntry& entry : batch->entries) CommitEntry(&entry);
  parts_.kv->CopyCommitted();  // the device copies while the host goes on
  parts_.kv->staging().Clear();
  CommitPrompts(*batch, pass);
}

void Committer::CommitEntry(StepEntry* entry) {
  ActiveRequest& run = *entry->run;
  run.plain_next = false;
  run.next_drafts.reset();
  const int first_position = entry->first_position();
  if (entry->proposal.has_trunk()) partial_->DropTail(&run);
  const size_t rows = RowsToCommit(*entry);
  if (const Status status = CommitRows(entry, rows); !status.ok()) {
    FallBack(entry, status);
    return;
  }
  entry->commit.done = true;
  entry->commit.rows = static_cast<int>(rows);
  partial_->Settle(entry);
  if (entry->commit.confirmed < entry->proposal.num_rejudged() && run.drafter_knows) {
    parts_.drafter->Rewind(run.sequence.id, first_position + 1 + entry->commit.confirmed);
  }
  AppendTokens(entry);
  if (entry->rows.first_feature < 0) return;
  // The drafter pairs a row with the token after it, which the last one of a finished path may
  // lack.
  const auto paired = std::min(rows, run.sequence.tokens.size() - 1 - first_position);
  const std::vector<int32_t>& path = entry->verdict.path;
  std::vector<int32_t> accepted(path.begin(), path.begin() + static_cast<int64_t>(paired));
  for (int32_t& row : accepted) row += entry->rows.first_feature;
  sync_->AddCommitted(run, first_position, std::move(accepted));
}

size_t Committer::RowsToCommit(const StepEntry& entry) {
  const Verdict& verdict = entry.verdict;
  const size_t accepted = verdict.path.size();
  if (verdict.finish == FinishReason::kNone) return accepted;
  // A finishing token that is itself a node is committed with its path (then C == len(tokens)),
  // but a provisional one stays the root: a full pass has yet to agree.
  const size_t kept = entry.proposal.NodesBefore(verdict.emitted.size());
  return std::min(accepted, entry.view.partial ? kept : kept + 1);
}

Status Committer::CommitRows(StepEntry* entry, size_t count) {
  Sequence* sequence = &entry->run->sequence;
  const std::vector<int32_t>& path = entry->verdict.path;
  std::vector<int32_t> accepted(path.begin(), path.begin() + static_cast<int64_t>(count));
  if (entry->view.partial) return parts_.kv->AppendTail(sequence, accepted);
  if (entry->rows.direct) {
    return parts_.kv->CommitReserved(sequence, std::move(entry->rows.reservation), accepted);
  }
  for (int32_t& row : accepted) row += entry->rows.first;
  return parts_.kv->Commit(sequence, accepted);
}

void Committer::FallBack(StepEntry* entry, const Status& why) {
  ActiveRequest& run = *entry->run;
  ReportStepFallback({Counter::kNworFallback, "nwor", ReasonOf(why)}, run.sequence.id, why,
                     parts_.metrics);
  run.plain_next = true;
  if (entry->proposal.has_trunk() && run.drafter_knows) {
    parts_.drafter->Rewind(run.sequence.id, static_cast<int>(run.sequence.tokens.size()));
  }
}

void Committer::AppendTokens(StepEntry* entry) {
  ActiveRequest& run = *entry->run;
  Verdict& verdict = entry->verdict;
  for (const EmittedToken& token : verdict.emitted) run.sequence.tokens.push_back(token.token);
  if (entry->commit.provisional) {
    run.partial.text.emplace(std::move(*verdict.text_after));
  } else {
    run.text = std::move(*verdict.text_after);
  }
}

void Committer::CommitPrompts(const StepBatch& batch, PlannedPass* pass) {
  for (size_t i = 0; i < batch.prompts.size(); ++i) {
    const PromptChunk& prompt = batch.prompts[i];
    Sequence* sequence = &prompt.run->sequence;
    const int first = sequence->committed_len;
    parts_.kv->Advance(sequence, std::move(pass->prompt_reservations[i]), prompt.tokens, "prefill");
    if (pass->prompt_features[i] < 0) continue;
    std::vector<int32_t> rows(prompt.tokens);
    std::iota(rows.begin(), rows.end(), pass->prompt_features[i]);
    sync_->AddCommitted(*prompt.run, first, std::move(rows));
  }
}

}  // namespace talon
