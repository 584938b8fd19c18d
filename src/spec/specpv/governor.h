// How far partial verification drifts from full verification, and what is done about it.
//
// A provisional token's distance is how many tokens after the last full pass's bonus it stands:
// the first token drawn from a partial view has distance 1. One AgreementByDistance and one
// DriftGovernor per sequence; owned by the engine's thread.
#ifndef TALON_SPEC_SPECPV_GOVERNOR_H_
#define TALON_SPEC_SPECPV_GOVERNOR_H_

#include <array>
#include <cstdint>

#include "observe/metrics.h"
#include "spec/specpv/config.h"

namespace talon {

// How often the full model chose the same token, by distance. Bucket i holds distances
// [2^i, 2^(i+1)), the last one all from 128.
class AgreementByDistance {
 public:
  static constexpr int kBuckets = 8;  // 1, 2, 4, .., 128
  // REQUIRES: distance >= 1
  static int BucketOf(int distance);
  static int FirstDistance(int bucket) { return 1 << bucket; }

  void Record(int distance, bool agrees);
  // What the walk of an exact full pass says of the provisional tokens, in order: the first
  // `confirmed` agree and, if `disagreed`, the next one does not. Later ones were not checked.
  void RecordTrunk(int confirmed, bool disagreed);
  void Merge(const AgreementByDistance& other);
  // Adds the counts to the metrics, labelled with the bucket's first distance.
  void Publish(Metrics* metrics) const;

  int64_t checked(int bucket) const { return checked_[bucket]; }
  int64_t disagreed(int bucket) const { return disagreed_[bucket]; }
  int64_t TotalChecked() const;
  int64_t TotalDisagreed() const;

 private:
  std::array<int64_t, kBuckets> checked_ = {};
  std::array<int64_t, kBuckets> disagreed_ = {};
};

// Keeps disagreement near specpv_error_target. After every 256 checked tokens: above the target the
// interval between full passes halves or, where it is 1 already, R doubles up to the configured
// one; otherwise the interval grows by 1 up to the configured one. Without a target both stay put.
class DriftGovernor {
 public:
  static constexpr int kWindow = 256;  // checked tokens per decision

  // `budget` is the sequence's own, whose R may be below the configured one (adaptive budgets).
  DriftGovernor(const SpecPvConfig& config, const BlockBudget& budget);

  void Record(bool agrees);
  void RecordTrunk(int confirmed, bool disagreed);

  int interval() const { return interval_; }  // partial steps between full passes, at least 1
  const BlockBudget& budget() const { return budget_; }  // for the next selection

 private:
  void Decide();

  float error_target_;
  int max_interval_;
  int max_retrieval_;
  int interval_;
  BlockBudget budget_;
  int checked_ = 0;  // in the window under way
  int disagreed_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_GOVERNOR_H_
