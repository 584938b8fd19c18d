// Whether exact partial verification pays here and now, by what was seen of it.
//
// Three things decide: how often full passes agree with provisional tokens, what passes take, and
// what a token took in the end. The verify curve was measured over shorter contexts, so a pass is
// expected to take what the last few of its kind took, in the curve's seconds. That is a forecast:
// rounds of partial passes that take longer for a token than full steps, by the clock, end it.
// A round whose first token is judged differently was in vain: it may cost the time that earlier
// rounds saved by the clock, and a little. So trunks grow with what they save, and a text that
// changes takes no more back than that, of each sequence.
// Where partial passes do not pay, nothing more is learnt of them: what is known fades now and then
// and they are tried again, more and more rarely.
//
// One for an engine, used by its thread.
#ifndef TALON_SPEC_SPECPV_PAYOFF_H_
#define TALON_SPEC_SPECPV_PAYOFF_H_

#include "spec/recent_times.h"
#include "spec/specpv/gate.h"
#include "spec/specpv/governor.h"

namespace talon {

enum class PassKind {
  kFull,      // its sequences could be verified partially and have nothing to replay
  kPartial,   // reads a partial view
  kSettling,  // full, replays provisional tokens
};

class PartialPayoff {
 public:
  static constexpr size_t kFullPasses = 3;  // timed before the first partial one
  static constexpr int kFewRounds = 4;      // before the clock has a say
  static constexpr int kFirstTrial = 128;   // steps until partial passes are tried again
  static constexpr int kLastTrial = 1024;

  // `ratio`: its time, in the seconds that the verify curve gives it.
  void RecordPass(PassKind kind, double ratio);
  // A settling pass confirmed so many tokens, all of them or up to one that it judged differently.
  void RecordTrunk(int confirmed, bool disagreed);
  // What a request's tokens took, all stages of its steps counted, in plain steps over its context
  // by the curve: those of a round, which is its partial passes and the one that settles them, or
  // of a full step.
  void RecordRound(double time, int tokens);
  void RecordFullStep(double time, int tokens, bool drafted);

  // Before a step of a sequence that could be verified partially and has no provisional tokens:
  // whether it should. `by_curve` with the longest trunk there is room for. `trying`, the
  // sequence's own, is true while partial passes are tried although they did not pay so far; a
  // disagreement should end that. Costs that are not known count as yes.
  bool Decide(const StepCosts& by_curve, bool* trying);
  // Provisional tokens after which a full pass is due.
  int MaxTrunk(const StepCosts& by_curve) const;

 private:
  // The costs as passes show them, with the best trunk for the odds of disagreement in `seen`.
  StepCosts Corrected(const StepCosts& by_curve, const TrunkLength& seen) const;
  double FullRatio() const;
  // What a token of a full step takes, of drafting or plain ones, whichever is less; infinite: not
  // known.
  double FullToken() const;
  // Whether rounds took longer for a token than full steps did.
  bool LosesByClock() const;
  // Provisional tokens that may be thrown away in a round.
  int AffordableTrunk(const StepCosts& costs) const;
  void Fade();

  TrunkLength seen_;
  RecentTimes full_;
  RecentTimes partial_;
  RecentTimes settling_;
  RecentTimes plain_token_;  // time of a token of a full step without drafts
  RecentTimes draft_token_;  // the same with drafts
  double round_time_ = 0;    // sums over rounds, older ones counting less
  double round_tokens_ = 0;
  double saved_ = 0;  // time that rounds saved, in tokens of full steps, older ones counting less
  int rounds_ = 0;
  int trial_interval_ = kFirstTrial;
  int until_trial_ = kFirstTrial;
};

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_PAYOFF_H_
