// The last few times that something took.
//
// What disturbs a measurement (another process, a page fault, a cold cache) only ever adds time,
// and seldom to most of a few in a row. So the median stands for what it usually takes here and
// now, and the minimum for what it takes by itself. Both forget an outlier soon. Where times vary
// by themselves, as waits that are often zero, the mean without the longest stands for their cost.
#ifndef TALON_SPEC_RECENT_TIMES_H_
#define TALON_SPEC_RECENT_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace talon {

class RecentTimes {
 public:
  static constexpr size_t kWindow = 5;
  // A time above this multiple of the median is an outlier: its excess is not the step's own.
  static constexpr double kOutlierFactor = 2;

  void Add(double time) { times_[next_++ % kWindow] = time; }

  size_t size() const { return std::min(next_, kWindow); }
  bool empty() const { return next_ == 0; }

  // The lower one of two. REQUIRES: not empty.
  double Median() const {
    std::array<double, kWindow> sorted = times_;
    const auto middle = sorted.begin() + (size() - 1) / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + size());
    return *middle;
  }
  // REQUIRES: not empty.
  double Minimum() const { return *std::min_element(times_.begin(), times_.begin() + size()); }
  // REQUIRES: not empty.
  double Mean() const { return Sum() / static_cast<double>(size()); }
  // The only one, if there is one. REQUIRES: not empty.
  double MeanButLongest() const {
    if (size() == 1) return times_[0];
    const double longest = *std::max_element(times_.begin(), times_.begin() + size());
    return (Sum() - longest) / static_cast<double>(size() - 1);
  }

 private:
  double Sum() const { return std::accumulate(times_.begin(), times_.begin() + size(), 0.0); }

  std::array<double, kWindow> times_ = {};
  size_t next_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_RECENT_TIMES_H_
