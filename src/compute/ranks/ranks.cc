#include "compute/ranks/ranks.h"

#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/contain.h"

namespace talon {
namespace {

std::span<uint8_t> BytesOf(std::span<float> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size_bytes()};
}

void CopyRows(const MatrixView& from, float* to) {
  for (int r = 0; r < from.rows; ++r, to += from.cols) {
    std::memcpy(to, from.data + r * from.stride, from.cols * sizeof(float));
  }
}

// Counts what happens until its end.
class Meter {
 public:
  explicit Meter(RankTraffic* traffic) : traffic_(traffic) {}
  ~Meter() { traffic_->seconds += watch_.Seconds(); }
  void Received(size_t bytes) const {
    ++traffic_->messages;
    traffic_->bytes += static_cast<int64_t>(bytes);
  }

 private:
  RankTraffic* traffic_;
  Stopwatch watch_;
};

}  // namespace

// After the step of `half`, neighbouring groups of 2 * half ranks have the sum of their subtree.
// Addition does not depend on the operands' order, so both halves of a pair get the same bits.
void Ranks::Sum(MatrixView x) {
  const Meter meter(&traffic_);
  const size_t count = static_cast<size_t>(x.rows) * x.cols;
  out_.resize(count);
  in_.resize(count);
  CopyRows(x, out_.data());
  for (int half = 1; half < size_; half *= 2) {
    Exchange(rank_ ^ half, BytesOf(out_), BytesOf(in_));
    meter.Received(BytesOf(in_).size());
    for (size_t i = 0; i < count; ++i) out_[i] += in_[i];
  }
  for (int r = 0; r < x.rows; ++r) {
    std::memcpy(x.data + r * x.stride, out_.data() + static_cast<size_t>(r) * x.cols,
                x.cols * sizeof(float));
  }
}

void Ranks::GatherColumns(MatrixView part, std::span<const int> bounds, MatrixView whole) {
  const Meter meter(&traffic_);
  TALON_CHECK(static_cast<int>(bounds.size()) == size_ + 1 &&
              part.cols == bounds[rank_ + 1] - bounds[rank_]);
  if (!leads()) {
    out_.resize(static_cast<size_t>(part.rows) * part.cols);
    CopyRows(part, out_.data());
    return Send(0, BytesOf(out_));
  }
  TALON_CHECK(whole.rows == part.rows && whole.cols == bounds[size_]);
  for (int rank = 0; rank < size_; ++rank) {
    const int cols = bounds[rank + 1] - bounds[rank];
    const MatrixView to = whole.Cols(bounds[rank], cols);
    if (rank == 0) {
      in_.resize(static_cast<size_t>(part.rows) * cols);
      CopyRows(part, in_.data());
    } else {
      in_.resize(static_cast<size_t>(part.rows) * cols);
      Receive(rank, BytesOf(in_));
      meter.Received(BytesOf(in_).size());
    }
    for (int r = 0; r < to.rows; ++r) {
      std::memcpy(to.data + r * to.stride, in_.data() + static_cast<size_t>(r) * cols,
                  cols * sizeof(float));
    }
  }
}

// After the step of `half`, neighbouring groups of 2 * half ranks have all that one of them has.
void Ranks::AllGather(uint8_t* data, std::span<const int64_t> bounds) {
  const Meter meter(&traffic_);
  TALON_CHECK(static_cast<int>(bounds.size()) == size_ + 1);
  const auto group = [&](int first, int count) -> std::span<uint8_t> {
    return {data + bounds[first], data + bounds[first + count]};
  };
  for (int half = 1; half < size_; half *= 2) {
    const int first = rank_ / half * half;
    const std::span<uint8_t> in = group(first ^ half, half);
    Exchange(rank_ ^ half, group(first, half), in);
    meter.Received(in.size());
  }
}

void Ranks::Gather(uint8_t* data, std::span<const int64_t> bounds) {
  const Meter meter(&traffic_);
  TALON_CHECK(static_cast<int>(bounds.size()) == size_ + 1);
  const auto bytes = [&](int rank) { return static_cast<size_t>(bounds[rank + 1] - bounds[rank]); };
  if (!leads()) return Send(0, {data, bytes(rank_)});
  for (int rank = 1; rank < size_; ++rank) {
    Receive(rank, {data + bounds[rank], bytes(rank)});
    meter.Received(bytes(rank));
  }
}

void Ranks::CallRoll(const std::string& fault) {
  constexpr double kSeconds = 1;
  SetDeadline(kSeconds);
  calls_roll_ = true;
  uint8_t here = 1;
  try {
    // All are sent first, so that no rank waits for one that waits for the one that is gone.
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) Send(rank, {&here, 1});
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) Receive(rank, {&here, 1});
    }
  } catch (const DeviceFault& silence) {
    throw DeviceFault(fault + "; " + silence.what());
  }
  throw DeviceFault(fault);
}

}  // namespace talon
