// Keeps the drafter in step with the target: it is told of sequences and of the rows that passes
// have committed.
#ifndef TALON_ENGINE_STEP_DRAFTER_SYNC_H_
#define TALON_ENGINE_STEP_DRAFTER_SYNC_H_

#include <cstdint>
#include <vector>

#include "compute/backend.h"
#include "engine/active_request.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/plan.h"

namespace talon {

class DrafterSync {
 public:
  // `drafter` may be null: then nothing happens. Neither is owned.
  DrafterSync(Drafter* drafter, Metrics* metrics) : drafter_(drafter), metrics_(metrics) {
    if (drafter_ != nullptr) capture_layers_ = drafter_->capture_layers();
  }

  // The target's layers whose input the drafter wants.
  const std::vector<int>& capture_layers() const { return capture_layers_; }

  // Tells the drafter of a sequence, before the target computes the first row of its own.
  void Introduce(ActiveRequest* run);
  void Forget(ActiveRequest* run);

  // Asks the pass for the features of `count` rows, if the drafter will be told of them. Returns
  // their first row in the features, or -1.
  int CaptureRows(const ActiveRequest& run, int first_row, int count, PassBuilder* builder) const;

  // Collects what the step has committed, from position `first` on: rows of the pass's features.
  void AddCommitted(const ActiveRequest& run, int first, std::vector<int32_t> rows);
  // Hands all of it to the drafter.
  void SendCommitted(const MatrixView& features);
  void DropCommitted() { committed_.clear(); }

 private:
  Drafter* drafter_;
  Metrics* metrics_;
  std::vector<int> capture_layers_;
  std::vector<CommittedRows> committed_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_DRAFTER_SYNC_H_
