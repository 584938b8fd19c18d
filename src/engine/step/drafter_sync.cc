#include "engine/step/drafter_sync.h"

#include <utility>

#include "engine/step/fallback.h"

namespace talon {

void DrafterSync::Introduce(ActiveRequest* run) {
  if (drafter_ == nullptr || !run->request.speculate || run->drafter_knows) return;
  const Sequence& sequence = run->sequence;
  const Status status = drafter_->Begin(sequence.id, sequence.tokens);
  run->drafter_knows = status.ok();
  if (!status.ok()) {
    ReportStepFallback({Counter::kSpecFallback, "tree", "drafter_refused"}, sequence.id, status,
                       metrics_);
    run->request.speculate = false;
  } else if (sequence.committed_len > 0) {
    drafter_->Recall(sequence.id, sequence.tokens, sequence.committed_len);
  }
}

void DrafterSync::Forget(ActiveRequest* run) {
  if (run->drafter_knows) drafter_->End(run->sequence.id);
  run->drafter_knows = false;
}

int DrafterSync::CaptureRows(const ActiveRequest& run, int first_row, int count,
                             PassBuilder* builder) const {
  const bool wanted = run.drafter_knows && !capture_layers_.empty();
  return wanted ? builder->CaptureFeatures(first_row, count) : -1;
}

void DrafterSync::AddCommitted(const ActiveRequest& run, int first, std::vector<int32_t> rows) {
  committed_.push_back({.sequence = run.sequence.id,
                        .tokens = run.sequence.tokens,
                        .first = first,
                        .rows = std::move(rows)});
}

void DrafterSync::SendCommitted(const MatrixView& features) {
  if (!committed_.empty()) drafter_->Extend(committed_, features);
  DropCommitted();
}

}  // namespace talon
