// Turns a drafter's own score into an acceptance estimate, learnt online.
//
// Scores of different drafters mean different things; what counts is how often nodes with such a
// score were accepted when their parent was. Where none was tried yet, the score itself is the
// estimate, or 0.25 if it is lower, so that drafts with scores too low are tried where rows are
// cheap. Counts per (depth, decile of the score), halved now and then so that the estimate follows
// the text. Where little was tried at a depth, the depth before says what such scores mean: a depth
// that counts for nothing until it was tried would not be tried where rows cost. Estimates of nodes
// that are never tried fade: an estimate that keeps them from being tried would never be corrected.
#ifndef TALON_SPEC_POLICY_CALIBRATION_H_
#define TALON_SPEC_POLICY_CALIBRATION_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace talon {

class Calibration {
 public:
  static constexpr int kDepths = 8;  // the last one stands for all deeper
  static constexpr int kDeciles = 10;

  // P(accepted | parent accepted) of a node at `depth` >= 1 with score in [0, 1].
  double Estimate(int depth, float score) const {
    double estimate = std::clamp<double>(score, kLeastPrior, 0.98);
    for (int above = 1; above <= std::min(depth, kDepths); ++above) {
      const Cell& cell = cells_[Index(above, score)];
      estimate = (cell.accepted + kPriorTrials * estimate) / (cell.tried + kPriorTrials);
    }
    return estimate;
  }

  void Record(int depth, float score, bool accepted) {
    Cell& cell = cells_[Index(depth, score)];
    cell.tried += 1;
    cell.accepted += accepted ? 1 : 0;
    if (++updates_ % kHalvingPeriod != 0) return;
    for (Cell& each : cells_) {
      each.tried /= 2;
      each.accepted /= 2;
    }
  }

  // The best node that was not tried is such a one.
  void Forget(int depth, float score) {
    Cell& cell = cells_[Index(depth, score)];
    cell.tried *= 1 - kFading;
    cell.accepted *= 1 - kFading;
  }

 private:
  static constexpr double kPriorTrials = 2;  // weight of what the depth before, or the score, says
  static constexpr double kLeastPrior = 0.25;
  static constexpr int64_t kHalvingPeriod = 4096;
  // The cost of trying unlikely nodes again, at most, as a share of all time.
  static constexpr double kFading = 1.0 / 128;
  struct Cell {
    double tried = 0;
    double accepted = 0;
  };
  static int Index(int depth, float score) {
    const int row = std::clamp(depth, 1, kDepths) - 1;
    const int decile = std::clamp(static_cast<int>(score * kDeciles), 0, kDeciles - 1);
    return row * kDeciles + decile;
  }
  std::array<Cell, kDepths * kDeciles> cells_;
  int64_t updates_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_POLICY_CALIBRATION_H_
