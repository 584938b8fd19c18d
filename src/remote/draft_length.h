// How many tokens to draft for the next round, and whether to draft at all.
//
// A controller steers the length so that about 0.7 of the longest path is accepted. A circuit
// breaker stops drafting where it does not pay: rounds are then plain (length 0), and some of them
// have a probe beside them, a short draft that does not delay the round and whose guesses are
// compared with the target's tokens. So probes cost no round, and the breaker begins open: drafts
// must be shown to pay before a round waits for them. Times are measured, and an outlier counts for
// few rounds only (spec/recent_times.h). One thread.
#ifndef TALON_REMOTE_DRAFT_LENGTH_H_
#define TALON_REMOTE_DRAFT_LENGTH_H_

#include <deque>

#include "spec/recent_times.h"

namespace talon {

struct DraftLengthOptions {
  int max_length = 5;
  bool adaptive = true;  // false: always max_length
};

// A round that verified drafts.
struct DraftedRound {
  int path_length = 0;  // length of the longest drafted path
  int accepted = 0;
  double wait_seconds = 0;    // time that the round waited for its drafts
  double target_seconds = 0;  // time of the verification, as the client saw it
};

class DraftLengthControl {
 public:
  explicit DraftLengthControl(const DraftLengthOptions& options);

  // Tokens to draft now; 0: decode plainly.
  int length() const { return open_ ? 0 : length_; }
  // REQUIRES: length() is 0. Whether this round should request drafts anyway, to compare them.
  bool wants_probe() const { return plain_since_probe_ + 1 >= probe_interval_; }
  // Tokens of a probe. The very first probe may be used whole if its guesses are correct.
  int probe_length() const { return probe_interval_ == 1 ? options_.max_length : 1; }

  void ObserveDrafted(const DraftedRound& round);
  void ObservePlain(double target_seconds);
  // A probe was answered after `seconds`.
  void ObserveProbe(double seconds);
  // Whether the next of the probe's guesses was the target's token.
  void ObserveGuess(bool right);

  bool open() const { return open_; }
  // Acceptance below which drafting does not pay, by the times measured so far.
  double threshold() const;
  // Recent loss of drafting against plain decoding, in plain rounds; never below 0.
  double loss() const { return loss_; }
  double error() const { return error_; }  // error of the controller
  double integral() const { return integral_; }

 private:
  void Steer();
  void CheckLoss(const DraftedRound& round);
  void Open();
  void Close();
  bool DraftsWouldPay() const;
  double ProbedAcceptance() const;
  double ExpectedTokens() const;
  double PlainSeconds() const;
  double WaitSeconds() const;
  double DraftedSeconds() const;

  DraftLengthOptions options_;
  int length_;
  std::deque<double> acceptances_;  // acceptances of the last drafted rounds
  double error_ = 0;
  double integral_ = 0;

  RecentTimes plain_times_;
  RecentTimes wait_times_;     // waits of rounds with drafts, corrected by probes
  RecentTimes drafted_times_;  // times of their verification
  double drafted_tokens_ = 0;  // in such a round, the bonus included, running mean; 0: none yet
  RecentTimes probe_times_;

  bool open_;
  double loss_ = 0;
  int rounds_since_close_ = 0;
  int probe_interval_ = 1;
  int plain_since_probe_ = 0;
  std::deque<bool> guesses_;  // the last
};

}  // namespace talon

#endif  // TALON_REMOTE_DRAFT_LENGTH_H_
