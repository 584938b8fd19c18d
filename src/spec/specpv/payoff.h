// Whether exact partial verification pays here and now, by what was seen of it.
//
// Three things decide: how often full passes agree with provisional tokens, what passes take, and
// how many drafts a step accepts. Passes take what the verify curve says, which was measured over
// shorter contexts: it is corrected by what partial and full passes of the same round took, one
// beside the other, so that a machine whose speed changes changes nothing. A round is weighed
// against the better of plain and drafting full steps.
//
// A round may turn out to be in vain. What it loses then has to be there, counted in tokens of full
// steps: a little at first, what earlier rounds gained, and a share of the time of full steps, less
// what drafts have lost, up to half of it: one may pay where the other does not. So trunks grow
// with what they gain, a text that changes takes little more back than that, and partial passes
// that do not pay are tried again now and then.
#ifndef TALON_SPEC_SPECPV_PAYOFF_H_
#define TALON_SPEC_SPECPV_PAYOFF_H_

#include <functional>
#include <limits>

#include "spec/recent_times.h"
#include "spec/specpv/round.h"

namespace talon {

enum class PassKind {
  kFull,      // its sequences could be verified partially and have nothing to replay
  kPartial,   // reads a partial view
  kSettling,  // full, replays provisional tokens
};

// What passes of each kind take against full ones, in the seconds that the curve gives them. One
// for an engine.
class PassRatios {
 public:
  static constexpr size_t kFewRounds = 3;  // before a ratio counts

  // `ratio`: the pass's time, in the seconds that the curve gives it.
  void Record(PassKind kind, double ratio);
  double partial() const { return RatioOf(views_) * settling(); }
  double settling() const { return RatioOf(settling_); }

 private:
  static double RatioOf(const RecentTimes& ratios) {
    return ratios.size() < kFewRounds ? 1 : ratios.Median();
  }
  RecentTimes views_;     // partial passes against the settling one of their round
  RecentTimes settling_;  // settling passes against the full ones just before their round
  RecentTimes full_;      // since the last round
  RecentTimes partial_;   // in this round
};

// Seconds of a sequence's passes by their rows.
struct PassSeconds {
  std::function<double(double rows)> full;
  std::function<double(double rows)> partial;
  std::function<double(double rows)> settling;
};

// One for a sequence.
class PartialPayoff {
 public:
  static constexpr int kNoLimit = std::numeric_limits<int>::max();
  static constexpr int kFirstSteps = 5;         // full ones, before the first round
  static constexpr double kAllowance = 1.25;    // tokens that may be lost at first
  static constexpr double kMostSaved = 8;       // tokens
  static constexpr double kTrialShare = 0.005;  // share of full steps' time that is for trials
  static constexpr double kMinGain = 1.05;      // below it a forecast is noise

  // A step with drafts, partial or full, `seconds` of drafting included in nothing else.
  void RecordDraftStep(double rows, double tokens, double seconds);
  // Time of a full step that is not part of a round, or of a round, and the tokens that it gave.
  void RecordFullStep(int tokens);
  void RecordRound(double seconds, int tokens);
  void RecordTrunk(int confirmed, bool disagreed) { odds_.RecordTrunk(confirmed, disagreed); }

  // Provisional tokens that the next round should gather, at most `most_tokens`; 0: none, a full
  // step is faster. `expected_odds`: of disagreement, in other sequences. `lost`: tokens of plain
  // steps that drafts have lost. Passes of 0 seconds are not known: then rounds always pay, and are
  // as long as the odds that were seen allow.
  int Decide(const PassSeconds& passes, double expected_odds, double lost, int most_tokens);
  // Means of steps that draft; while none has, a step has its own row and token.
  double draft_rows() const { return draft_.steps > 0 ? draft_.rows : 1; }
  double draft_tokens() const { return draft_.steps > 0 ? draft_.tokens : 1; }
  double draft_seconds() const { return draft_.seconds; }

 private:
  // Steps with drafts, running means.
  struct DraftSteps {
    double rows = 4;
    double tokens = 2;
    double seconds = 0;
    int steps = 0;
  };
  RoundCosts CostsOf(const PassSeconds& passes);
  int UnpricedTrunk() const;

  DraftSteps draft_;
  DisagreementOdds odds_;
  int full_steps_ = 0;
  double full_token_ = 0;        // seconds of a token of full steps, as decided last
  double balance_ = kAllowance;  // such tokens that may be lost
};

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_PAYOFF_H_
