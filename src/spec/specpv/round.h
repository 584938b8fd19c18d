// Rounds of exact partial verification: partial steps gather provisional tokens, then a full pass
// judges them. What a round is expected to give and to take, and how many tokens it should gather.
//
// The full pass confirms the tokens before the first one that it judges differently; all that
// follow it are thrown away. So the more disagreements there are, the shorter the best round.
#ifndef TALON_SPEC_SPECPV_ROUND_H_
#define TALON_SPEC_SPECPV_ROUND_H_

#include <functional>

namespace talon {

// Odds that a full pass judges a provisional token differently, by those that were judged.
class DisagreementOdds {
 public:
  // A full pass confirmed so many tokens, all of a trunk or those before one that it judged
  // differently.
  void RecordTrunk(int confirmed, bool disagreed);
  // So many tokens came of full steps: what was seen before them weighs less from now on.
  void Fade(double tokens);
  // `expected` counts like a few tokens that were judged.
  double Odds(double expected) const;

 private:
  double judged_ = 0;  // tokens, older ones counting less
  double disagreed_ = 0;
};

// Seconds that steps of a sequence take.
struct RoundCosts {
  double full_token = 0;      // a token of full steps; 0: nothing is known
  double partial_token = 0;   // a provisional token
  double step_tokens = 1;     // provisional tokens of a partial step
  double settled_drafts = 0;  // drafts that a full pass accepts behind a trunk it confirms
  std::function<double(double tokens)> settling;  // a full pass that judges so many
};

struct PartialRound {
  int trunk = 0;       // provisional tokens after which the full pass is due
  double gain = 0;     // its speed against that of full steps
  double at_risk = 0;  // seconds that it loses if the first of its tokens is judged differently
};

// Expected number of provisional tokens before the first that is judged differently.
double ExpectedConfirmed(double tokens, double odds);

// The round of the highest speed among those of at most `most_tokens` that risk at most
// `affordable` seconds; a trunk of 0: there is none. REQUIRES: the costs are known.
PartialRound BestRound(const RoundCosts& costs, double odds, int most_tokens, double affordable);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_ROUND_H_
