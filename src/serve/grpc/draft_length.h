// How many tokens to draft for the next round, and whether to draft at all.
//
// A controller steers the length so that about 0.7 of the longest path is accepted. A circuit
// breaker stops drafting where it does not pay: rounds are then plain (length 0), and now and then
// one of them is a probe, whose drafts come too late to be used and are compared with what the
// target said. So a probe costs no time. Times are measured, never assumed. One thread.
#ifndef TALON_SERVE_GRPC_DRAFT_LENGTH_H_
#define TALON_SERVE_GRPC_DRAFT_LENGTH_H_

#include <deque>

namespace talon {

struct DraftLengthOptions {
  int max_length = 5;
  bool adaptive = true;  // false: always max_length
};

// A round that verified drafts.
struct DraftedRound {
  int path_length = 0;  // of the longest drafted path
  int accepted = 0;
  double wait_seconds = 0;    // that the round waited for its drafts
  double target_seconds = 0;  // of the verification, as the client saw it
};

class DraftLengthControl {
 public:
  explicit DraftLengthControl(const DraftLengthOptions& options);

  // Tokens to draft now; 0: decode plainly.
  int length() const { return open_ ? 0 : length_; }
  // REQUIRES: length() is 0. Whether this round should ask for drafts all the same, to compare.
  bool wants_probe() const { return plain_since_probe_ + 1 >= probe_interval_; }

  void ObserveDrafted(const DraftedRound& round);
  void ObservePlain(double target_seconds);
  // One of a probe's first guesses was what the target chose.
  void ObserveProbe(bool right);

  bool open() const { return open_; }
  // Acceptance below which drafting does not pay, by the times measured so far.
  double threshold() const;
  // Tokens per second against plain decoding, over the last drafted rounds.
  double gain() const;
  double error() const { return error_; }  // of the controller
  double integral() const { return integral_; }

 private:
  void Steer(double acceptance);
  void CheckBreaker(double acceptance);
  void Open();
  void Close();
  double PlainSeconds() const;

  DraftLengthOptions options_;
  int length_;
  std::deque<DraftedRound> recent_;
  double error_ = 0;
  double integral_ = 0;
  double wait_seconds_ = 0;     // running means
  double drafted_seconds_ = 0;  // of verifications with drafts
  double plain_seconds_ = 0;    // and without; 0: none yet
  int rounds_below_ = 0;
  int rounds_since_close_ = 0;
  bool open_ = false;
  int probe_interval_;
  int plain_since_probe_ = 0;
  std::deque<bool> probes_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_DRAFT_LENGTH_H_
