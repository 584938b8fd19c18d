#include "remote/draft_length.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace talon {
namespace {

constexpr size_t kWindow = 5;     // rounds, and guesses, that a mean is taken over
constexpr size_t kMinRounds = 3;  // for a mean of acceptance
constexpr double kTargetAcceptance = 0.7;
constexpr double kProportional = 2;
constexpr double kIntegral = 0.5;
constexpr double kDerivative = 0.1;
constexpr double kMaxIntegral = 10;

constexpr double kMaxThreshold = 0.5;
constexpr double kThresholdShare = 0.8;
constexpr double kHysteresis = 0.1;
constexpr double kMinGain = 1.25;  // least gain that drafts must be expected to bring
// Loss, in plain rounds, at which drafting stops, and the most that a single round counts for: a
// slow round may be an outlier of the network.
constexpr double kMaxLoss = 5;
constexpr double kMaxLossOfRound = 3;
constexpr int kProbeInterval = 8;
constexpr int kMaxProbeInterval = 64;
constexpr int kSettledRounds = 32;  // after which the probe interval is reset

// Weight of a new count of tokens, and of a probe against the times measured before it.
constexpr double kFading = 0.05;

template <typename T>
void Push(T value, std::deque<T>* window) {
  window->push_back(value);
  if (window->size() > kWindow) window->pop_front();
}

// Replaces the times by one, their mean moved towards `now`.
void Fade(double now, RecentTimes* times) {
  const double before = times->MeanButLongest();
  *times = {};
  times->Add(before + kFading * (now - before));
}

}  // namespace

DraftLengthControl::DraftLengthControl(const DraftLengthOptions& options)
    : options_(options), length_(options.max_length), open_(options.adaptive) {}

// Verifying drafts is not faster than plain decoding, so its mean bounds an outlier of the plain
// times. Its own outliers stay in the mean, as they do in the rounds that are compared with it.
double DraftLengthControl::PlainSeconds() const {
  if (plain_times_.empty()) return drafted_times_.empty() ? 0 : drafted_times_.Mean();
  const double plain = plain_times_.Median();
  return drafted_times_.empty() ? plain : std::min(plain, drafted_times_.Mean());
}

// Before any round has waited for drafts, probes give the estimate.
double DraftLengthControl::WaitSeconds() const {
  const RecentTimes& times = wait_times_.empty() ? probe_times_ : wait_times_;
  return times.empty() ? 0 : times.MeanButLongest();
}

double DraftLengthControl::DraftedSeconds() const {
  if (drafted_times_.empty()) return PlainSeconds();
  return std::max(drafted_times_.MeanButLongest(), PlainSeconds());
}

double DraftLengthControl::threshold() const {
  if (PlainSeconds() <= 0) return 0;
  return std::min(kMaxThreshold, kThresholdShare * WaitSeconds() / PlainSeconds());
}

void DraftLengthControl::ObserveDrafted(const DraftedRound& round) {
  if (round.path_length <= 0 || !options_.adaptive) return;
  Push(std::min(1.0, 1.0 * round.accepted / round.path_length), &acceptances_);
  wait_times_.Add(round.wait_seconds);
  drafted_times_.Add(round.target_seconds);
  drafted_tokens_ += kFading * (1 + round.accepted - drafted_tokens_);
  if (acceptances_.size() >= kMinRounds) Steer();
  if (!open_) CheckLoss(round);
}

// The longer a round waits for its drafts, the more tokens it must yield: the target acceptance
// falls with the wait, so paths grow longer.
void DraftLengthControl::Steer() {
  const double acceptance = std::accumulate(acceptances_.begin(), acceptances_.end(), 0.0) /
                            static_cast<double>(acceptances_.size());
  const double previous = error_;
  const double target_acceptance =
      kTargetAcceptance * PlainSeconds() / (PlainSeconds() + WaitSeconds());
  error_ = acceptance - target_acceptance;
  integral_ = std::clamp(integral_ + error_, -kMaxIntegral, kMaxIntegral);
  const double wanted =
      length_ + kProportional * error_ + kIntegral * integral_ + kDerivative * (error_ - previous);
  length_ = std::clamp(static_cast<int>(std::lround(wanted)), 1, options_.max_length);
}

// A cumulative sum bounded below by 0: it crosses the limit soon where drafting loses, and hardly
// ever by chance where it wins.
void DraftLengthControl::CheckLoss(const DraftedRound& round) {
  const double plain_rounds = (round.wait_seconds + round.target_seconds) / PlainSeconds();
  const double lost = std::min(plain_rounds - (1 + round.accepted), kMaxLossOfRound);
  loss_ = std::max(0.0, loss_ + lost);
  if (++rounds_since_close_ == kSettledRounds) probe_interval_ = kProbeInterval;
  if (loss_ >= kMaxLoss) Open();
}

// A breaker that opens soon after it closed doubles the probe interval.
void DraftLengthControl::Open() {
  open_ = true;
  probe_interval_ = std::max(probe_interval_, kProbeInterval);
  if (rounds_since_close_ < kSettledRounds) {
    probe_interval_ = std::min(2 * probe_interval_, kMaxProbeInterval);
  }
  plain_since_probe_ = 0;
  guesses_.clear();
}

// After an unsuccessful close a smaller loss opens it again.
void DraftLengthControl::Close() {
  open_ = false;
  length_ = options_.max_length;
  acceptances_.clear();
  error_ = 0;
  integral_ = 0;
  drafted_tokens_ = ExpectedTokens();
  loss_ = probe_interval_ > kProbeInterval ? kMaxLoss / 2 : 0;
  rounds_since_close_ = 0;
}

void DraftLengthControl::ObservePlain(double target_seconds) {
  plain_times_.Add(target_seconds);
  if (!open_) return;
  ++plain_since_probe_;
  if (DraftsWouldPay()) Close();
}

// The first probes follow each other quickly. Older measurements lose weight with each probe.
void DraftLengthControl::ObserveProbe(double seconds) {
  probe_times_.Add(seconds);
  if (!drafted_times_.empty()) {
    Fade(std::min(WaitSeconds(), probe_times_.MeanButLongest()), &wait_times_);
    Fade(PlainSeconds(), &drafted_times_);
    drafted_tokens_ += kFading * (1 + options_.max_length - drafted_tokens_);
  }
  plain_since_probe_ = 0;
  if (probe_interval_ < kProbeInterval) probe_interval_ *= 2;
}

void DraftLengthControl::ObserveGuess(bool right) {
  if (!open_) return;
  Push(right, &guesses_);
  if (DraftsWouldPay()) Close();
}

// With one correct and one wrong guess added, since few guesses are weak evidence.
double DraftLengthControl::ProbedAcceptance() const {
  const auto right = static_cast<double>(std::ranges::count(guesses_, true));
  return (right + 1) / static_cast<double>(guesses_.size() + 2);
}

// Expected tokens of a round with drafts, at most the mean of such rounds so far.
double DraftLengthControl::ExpectedTokens() const {
  double tokens = 1;
  for (int depth = 1; depth <= options_.max_length; ++depth) {
    tokens += std::pow(ProbedAcceptance(), depth);
  }
  return drafted_tokens_ > 0 ? std::min(tokens, drafted_tokens_) : tokens;
}

// Whether the expected gain exceeds the time. False while there are no plain times to compare with.
bool DraftLengthControl::DraftsWouldPay() const {
  if (guesses_.empty() || !guesses_.back() || plain_times_.empty()) return false;
  if (ProbedAcceptance() <= threshold() + kHysteresis) return false;
  return ExpectedTokens() * PlainSeconds() > kMinGain * (WaitSeconds() + DraftedSeconds());
}

}  // namespace talon
