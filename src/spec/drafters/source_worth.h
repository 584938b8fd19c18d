// Whether one source of a MERGED draft is worth what it costs, learnt from the steps so far.
//
// Steps with and without it are compared, apart for each strength of what the cheaper sources
// propose. What it adds is counted for each sequence, in tokens; what it costs for whole steps,
// also apart for each size of the batch: a device runs a head for one sequence in the time that it
// takes for ten. So it is asked where it adds tokens, if all that it adds to a step is worth the
// step's time. Where that is not known, it is tried if it usually gives more than the others
// promise. Both ways are tried again now and then, by all sequences in the same step. Outliers are
// forgotten soon (recent_times.h).
#ifndef TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
#define TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_

#include <array>
#include <span>
#include <vector>

#include "spec/recent_times.h"

namespace talon {

class SourceWorth {
 public:
  // The sequences of a step.
  struct Batch {
    std::vector<double> expected;  // drafts that are accepted without the source, for each
    std::vector<int> strengths;    // classes of these
    int mean_strength = 0;         // class of their mean
  };
  static Batch BatchOf(std::span<const double> expected);

  // So cheap for what a token costs now that it is always asked.
  bool IsCheap(double token_seconds) const;
  // A step begins: for which of its sequences the source is asked, at the rate at which tokens
  // come now; 0: time does not matter.
  std::vector<bool> Choose(const Batch& batch, double token_seconds) const;

  // The source was asked, which took `seconds` for each sequence.
  void ObserveProposal(double seconds);
  // A sequence of a step, for which it was asked or was not, has got so many tokens.
  struct Gained {
    int strength = 0;
    bool asked = false;
    int tokens = 0;
  };
  // Those of one step.
  void ObserveTokens(std::span<const Gained> sequences);
  // A step; `asked`: for any of its sequences.
  void ObserveStep(const Batch& batch, bool asked, double seconds);

  // 0: never asked.
  double proposal_seconds() const { return proposals_.empty() ? 0 : proposals_.Median(); }

 private:
  static constexpr int kStrengths = 6;
  static constexpr int kBatchSizes = 11;  // 1, 2, up to 4, 8, .. 1024

  // The sequences of a step count as one: they often have a good or a bad step together.
  struct Tokens {
    double mean = 0;  // running
    int count = 0;
    double step_sum = 0;  // what the step at hand adds
    int step_count = 0;
    void Add(int tokens);
    void EndStep();
  };
  struct Steps {
    double seconds = 0;  // the median of the first few, then a running mean
    RecentTimes recent;  // seconds of the last
    int count = 0;
    int since_last = 0;  // steps of the other kind since
  };
  template <class T>
  using ByStrength = std::array<std::array<T, 2>, kStrengths>;  // without and with the source
  static int StrengthOf(double expected);
  static size_t SizeOf(const Batch& batch);
  // Tokens that it adds to a sequence, as far as that is known.
  double Gain(int strength, double expected) const;

  RecentTimes proposals_;  // seconds
  ByStrength<Tokens> tokens_;
  Tokens usual_;  // with the source, at any strength
  std::array<ByStrength<Steps>, kBatchSizes> steps_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_SOURCE_WORTH_H_
