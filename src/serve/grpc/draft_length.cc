#include "serve/grpc/draft_length.h"

#include <algorithm>
#include <cmath>

namespace talon {
namespace {

constexpr size_t kWindow = 5;          // rounds, and probes, that a mean is taken over
constexpr size_t kMinRounds = 3;       // for means of acceptance
constexpr size_t kMinTimedRounds = 2;  // for times, which say more
constexpr double kWantedAcceptance = 0.7;
constexpr double kProportional = 2;
constexpr double kIntegral = 0.5;
constexpr double kDerivative = 0.1;
constexpr double kMaxIntegral = 10;

constexpr double kMaxThreshold = 0.5;
constexpr double kThresholdShare = 0.8;
constexpr double kHysteresis = 0.1;
constexpr int kRoundsBelow = 2;
// Below this gain drafting stops whatever the acceptance; above the second it never does.
constexpr double kLosing = 0.97;
constexpr double kWinning = 1.1;
constexpr size_t kMinProbes = 2;
constexpr int kProbeInterval = 8;
constexpr int kMaxProbeInterval = 64;
constexpr int kSettledRounds = 32;  // after which the breaker forgets that it opened

constexpr double kSlow = 0.2;  // weight of a new time

void Follow(double value, double* mean) { *mean += (*mean == 0 ? 1.0 : kSlow) * (value - *mean); }

}  // namespace

DraftLengthControl::DraftLengthControl(const DraftLengthOptions& options)
    : options_(options), length_(options.max_length), probe_interval_(kProbeInterval) {}

double DraftLengthControl::PlainSeconds() const {
  return plain_seconds_ > 0 ? plain_seconds_ : drafted_seconds_;
}

double DraftLengthControl::threshold() const {
  if (PlainSeconds() <= 0) return 0;
  return std::min(kMaxThreshold, kThresholdShare * wait_seconds_ / PlainSeconds());
}

double DraftLengthControl::gain() const {
  double tokens = 0;
  double seconds = 0;
  for (const DraftedRound& round : recent_) {
    tokens += round.accepted + 1;
    seconds += round.wait_seconds + round.target_seconds;
  }
  return seconds > 0 ? tokens / seconds * PlainSeconds() : 1;
}

void DraftLengthControl::ObserveDrafted(const DraftedRound& round) {
  if (round.path_length <= 0 || !options_.adaptive) return;
  recent_.push_back(round);
  if (recent_.size() > kWindow) recent_.pop_front();
  Follow(round.wait_seconds, &wait_seconds_);
  Follow(round.target_seconds, &drafted_seconds_);
  if (recent_.size() < kMinTimedRounds) return;
  double sum = 0;
  for (const DraftedRound& r : recent_) sum += std::min(1.0, 1.0 * r.accepted / r.path_length);
  const double acceptance = sum / static_cast<double>(recent_.size());
  if (recent_.size() >= kMinRounds) Steer(acceptance);
  CheckBreaker(acceptance);
}

void DraftLengthControl::Steer(double acceptance) {
  const double previous = error_;
  error_ = acceptance - kWantedAcceptance;
  integral_ = std::clamp(integral_ + error_, -kMaxIntegral, kMaxIntegral);
  const double wanted =
      length_ + kProportional * error_ + kIntegral * integral_ + kDerivative * (error_ - previous);
  length_ = std::clamp(static_cast<int>(std::lround(wanted)), 1, options_.max_length);
}

void DraftLengthControl::CheckBreaker(double acceptance) {
  const DraftedRound& last = recent_.back();
  const bool useless =
      recent_.size() >= kMinRounds && acceptance < threshold() && gain() < kWinning;
  // Even if all of it had been accepted: once is enough then.
  const bool hopeless =
      (1 + last.path_length) * PlainSeconds() < last.wait_seconds + last.target_seconds;
  rounds_below_ = useless || gain() < kLosing ? rounds_below_ + (hopeless ? 2 : 1) : 0;
  if (rounds_below_ >= kRoundsBelow) {
    Open();
  } else if (++rounds_since_close_ >= kSettledRounds) {
    probe_interval_ = kProbeInterval;
  }
}

// A breaker that has just closed in vain waits twice as long for its next probe.
void DraftLengthControl::Open() {
  open_ = true;
  if (rounds_since_close_ > 0 && rounds_since_close_ < kSettledRounds && plain_seconds_ > 0) {
    probe_interval_ = std::min(2 * probe_interval_, kMaxProbeInterval);
  }
  plain_since_probe_ = 0;
  probes_.clear();
}

void DraftLengthControl::Close() {
  open_ = false;
  length_ = options_.max_length;
  recent_.clear();
  error_ = 0;
  integral_ = 0;
  rounds_below_ = 0;
  rounds_since_close_ = 0;
}

void DraftLengthControl::ObservePlain(double target_seconds) {
  Follow(target_seconds, &plain_seconds_);
  if (open_) ++plain_since_probe_;
}

void DraftLengthControl::ObserveProbe(bool right) {
  if (!open_) return;
  plain_since_probe_ = 0;
  probes_.push_back(right);
  if (probes_.size() > kWindow) probes_.pop_front();
  const auto right_ones = static_cast<double>(std::ranges::count(probes_, true));
  const double acceptance = right_ones / static_cast<double>(probes_.size());
  // What drafts would win, for the wait that they cost.
  double tokens = 1;
  for (int depth = 1; depth <= options_.max_length; ++depth) tokens += std::pow(acceptance, depth);
  const double wait = wait_seconds_ / std::max(PlainSeconds(), 1e-9);
  const bool pays = acceptance > threshold() + kHysteresis && tokens > kWinning * (1 + wait);
  if (probes_.size() >= kMinProbes && pays) Close();
}

}  // namespace talon
