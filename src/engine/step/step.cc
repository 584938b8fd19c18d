#include "engine/step/step.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "engine/step/fallback.h"
#include "observe/stage_range.h"

namespace talon {

Step::Step(const Parts& parts, const StepOptions& options)
    : parts_(parts),
      sync_(parts.drafter, parts.metrics),
      partial_(parts, options.specpv, options.budget.max_depth),
      proposer_(parts, options, &partial_),
      planner_(parts, options, &partial_, &sync_),
      verifier_(parts, options, &partial_, &sync_),
      reader_(parts),
      acceptor_(parts, options),
      committer_(parts, options, &partial_, &sync_),
      observer_(parts, options, &sync_),
      meter_(parts, options, &partial_) {
  if (!options.nwor) return;
  const KvShape& kv = parts.kv->shape();
  LogEvent(
      LogLevel::kInfo, "NWOR: ready",
      {{"staging_rows", kv.staging_rows}, {"staging_bytes", kv.staging_rows * kv.BytesPerToken()}});
}

Status Step::Run(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts) {
  StageRange range("Step");
  range.Note("sequences", decoding.size());
  range.Note("prompt_chunks", prompts.size());
  try {
    const Status status = RunStages(decoding, prompts);
    if (!status.ok()) Abandon();
    return status;
  } catch (...) {  // a broken invariant
    Abandon();
    throw;
  }
}

Status Step::RunStages(std::span<ActiveRequest* const> decoding,
                       std::span<const PromptChunk> prompts) {
  const Stopwatch watch(parts_.backend->time());
  Begin(decoding, prompts);
  proposer_.Propose(&batch_);
  TALON_RETURN_IF_ERROR(planner_.Plan(&batch_, &pass_));
  TALON_RETURN_IF_ERROR(Stage(decoding));
  TALON_RETURN_IF_ERROR(verifier_.Verify(&batch_, pass_, &verified_));
  reader_.Read(batch_, pass_, verified_.output);
  acceptor_.Accept(&batch_, verified_);
  committer_.Commit(&batch_, &pass_);
  observer_.Observe(&batch_, verified_.output.features);
  verifier_.WaitForPrompts(batch_);
  meter_.Account(batch_, pass_.builder.num_tree_rows(), watch.Seconds());
  partial_.Reconsider(decoding);
  return OkStatus();
}

Status Step::Stage(std::span<ActiveRequest* const> decoding) {
  const Status staged = parts_.kv->staging().Begin(pass_.builder.staged());
  if (staged.ok()) return staged;
  Abandon();
  for (ActiveRequest* run : decoding) {
    ReportStepFallback({Counter::kNworFallback, "nwor", ReasonOf(staged)}, run->sequence.id, staged,
                       parts_.metrics);
    run->plain_next = true;
  }
  Begin(decoding, batch_.prompts);
  proposer_.Propose(&batch_);
  return planner_.Plan(&batch_, &pass_);
}

void Step::Begin(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts) {
  batch_ = {.prompts = prompts};
  int64_t context = 0;
  int views = 0;
  for (ActiveRequest* run : decoding) {
    sync_.Introduce(run);
    partial_.Admit(run);
    batch_.entries.emplace_back(run);
    const PartialState& partial = run->partial;
    context += partial.lists ? partial.lists->visible_tokens + run->sequence.tail_len
                             : run->sequence.committed_len;
    views += partial.lists ? 1 : 0;
  }
  const auto count = static_cast<int>(decoding.size());
  batch_.shape = {.sequences = count,
                  .context = static_cast<int>(context / std::max(count, 1)),
                  .partial = 2 * views > count};
  if (count > 0) parts_.policy->BeginStep(batch_.shape);
}

void Step::Abandon() {
  planner_.Cancel(&batch_, &pass_);
  sync_.DropCommitted();
  parts_.kv->staging().Clear();
}

void Step::Suspend(ActiveRequest* run) {
  if (run->sequence.tail_len > 0 && run->partial.exact()) partial_.DropTail(run);
  run->partial.lists.reset();
  run->next_drafts.reset();
  sync_.Forget(run);
}

}  // namespace talon
