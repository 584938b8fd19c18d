// Whether one source of a MERGED draft is worth what it costs, by a model of both that is learnt
// from the steps so far.
//
// Gain: the tokens that sequences got with the source beyond those that the cheaper sources'
// calibrated scores promise, apart for each strength of that promise. What is not known yet is
// assumed, and the assumption fades as steps are seen; it is tried again now and then. Cost: the
// time of its proposals and of the rows that they add to the pass. Where a device drafts ahead of
// the host, no proposal is timed: there whole steps with and without the source are compared, apart
// for each size of the batch, because a device runs a head for one sequence in the time that it
// takes for ten. Outliers are forgotten soon (recent_times.h).
#ifndef TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
#define TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_

#include <array>
#include <span>
#include <vector>

#include "spec/recent_times.h"
#include "spec/step_prices.h"

namespace talon {

class SourceWorth {
 public:
  // So cheap for what a token costs now that it is always asked.
  bool IsCheap(double token_seconds) const;
  // A step begins: for which of its sequences the source is asked. `promised`: drafts that are
  // accepted without it, for each.
  std::vector<bool> Choose(std::span<const double> promised, const StepPrices& prices) const;

  // The source was asked and waited for: seconds, and rows that it adds, for each sequence.
  void ObserveProposal(double seconds, double rows);
  // A sequence of a step, for which it was asked or was not, has got so many tokens.
  struct Gained {
    double promised = 0;
    bool asked = false;
    int tokens = 0;
  };
  // Those of one step.
  void ObserveTokens(std::span<const Gained> sequences);
  // A step of so many sequences; `asked`: for any of them.
  void ObserveStep(size_t sequences, bool asked, double seconds);

  // 0: never waited for.
  double proposal_seconds() const { return proposals_.empty() ? 0 : proposals_.Median(); }

 private:
  static constexpr int kStrengths = 6;
  static constexpr int kBatchSizes = 11;  // 1, 2, up to 4, 8, .. 1024

  // Tokens of steps with the source. The sequences of a step count as one: they often have a good
  // or a bad step together.
  struct Tokens {
    double mean = 0;  // running
    int count = 0;
    int skipped = 0;      // steps without it since
    double step_sum = 0;  // what the step at hand adds
    int step_count = 0;
    bool skipping = false;
    void Add(double tokens);
    void EndStep();
    // The mean, as far as it is known.
    double Blended(double assumed) const;
  };
  struct Steps {
    double seconds = 0;  // the median of the first few, then a running mean
    RecentTimes recent;  // seconds of the last
    int count = 0;
    int since_last = 0;  // steps of the other kind since
  };
  static size_t StrengthOf(double promised);
  static size_t SizeOf(size_t sequences);
  // Tokens that it adds to a sequence.
  double Gain(double promised) const;

  RecentTimes proposals_;                 // seconds
  double rows_ = 0;                       // rows of a proposal, running mean
  std::array<Tokens, kStrengths> added_;  // beyond what was promised, by its strength
  Tokens usual_;                          // all, at any strength
  using WithoutAndWith = std::array<Steps, 2>;
  std::array<WithoutAndWith, kBatchSizes> steps_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
