// Whether one source of a MERGED draft is worth what it costs, learnt from the steps so far.
//
// Steps with and without the source are compared by the tokens they gave and the time they took,
// apart for each strength of what the cheaper sources propose. Both ways are tried now and then.
// Outliers are forgotten soon (recent_times.h).
#ifndef TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
#define TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_

#include <array>

#include "spec/recent_times.h"

namespace talon {

class SourceWorth {
 public:
  // Kind of a step, by the tokens that are expected without the source.
  static int BucketOf(double expected_tokens);

  // So cheap for what a token costs now that it is always asked.
  bool IsCheap(double token_seconds) const;
  // A step with the source is worth its time at the rate at which tokens come now.
  bool Pays(int bucket, double token_seconds) const;

  // The source was asked, which took `seconds` for each sequence.
  void ObserveProposal(double seconds);
  // A step is over for which it was asked, or was not.
  void ObserveStep(int bucket, bool asked, int tokens, double seconds);

  // 0: never asked.
  double proposal_seconds() const { return proposals_.empty() ? 0 : proposals_.Median(); }

 private:
  static constexpr int kBuckets = 6;

  // Steps of one kind.
  struct Steps {
    double tokens = 0;   // running mean
    double seconds = 0;  // the median of the first few, then a running mean
    RecentTimes recent;  // seconds of the last
    int count = 0;
    int since_last = 0;  // steps of the other kind since
  };

  RecentTimes proposals_;                             // seconds
  std::array<std::array<Steps, 2>, kBuckets> steps_;  // without and with the source
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
