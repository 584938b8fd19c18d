// The processes that run one model together: rank 0 of them leads, each has a part of the weights
// and of the K/V heads.
//
// Messages between two ranks arrive in the order they were sent. Every call has a deadline: a rank
// that does not answer in time, or is gone, throws DeviceFault with its number, and the model
// cannot go on in this process. Used by one thread at a time.
#ifndef TALON_COMPUTE_RANKS_RANKS_H_
#define TALON_COMPUTE_RANKS_RANKS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compute/matrix.h"
#include "compute/ranks/segments.h"

namespace talon {

// What the sums and gathers of a rank have cost so far.
struct RankTraffic {
  int64_t messages = 0;  // received
  int64_t bytes = 0;
  double seconds = 0;  // waiting for slower ranks included
};

class Ranks {
 public:
  Ranks(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool leads() const { return rank_ == 0; }
  // Its number among the ranks of its machine, and how many these are.
  virtual int local_rank() const { return rank_; }
  virtual int local_size() const { return size_; }
  const RankTraffic& traffic() const { return traffic_; }

  // How long a call may wait for another rank.
  virtual void SetDeadline(double seconds) { deadline_ = seconds; }
  double deadline() const { return deadline_; }

  // All ranks end in order. Without it they end as if by a fault.
  virtual void Finish() {}

  // Return when `bytes` may be used again; the receiver knows how many there are.
  virtual void Send(int to, std::span<const uint8_t> bytes) = 0;
  virtual void Receive(int from, std::span<uint8_t> bytes) = 0;
  // Both at once, with a rank that does the same.
  virtual void Exchange(int peer, std::span<const uint8_t> out, std::span<uint8_t> in) = 0;

  // x = the sum of x over all ranks, added pairwise (segments.h): the same bits in all of them.
  void Sum(MatrixView x);
  // Rank r has the columns of bounds[r] to bounds[r + 1] of `whole` as `part`; the leader's `whole`
  // gets all, the others' is not used. REQUIRES: bounds [size + 1].
  void GatherColumns(MatrixView part, std::span<const int> bounds, MatrixView whole);
  // Rank r has the bytes of bounds[r] to bounds[r + 1]; then all have all. REQUIRES: bounds
  // [size + 1].
  void AllGather(uint8_t* data, std::span<const int64_t> bounds);
  // The leader gets all of them. REQUIRES: its `data` has room for all behind its own, another
  // rank's begins with its own.
  void Gather(uint8_t* data, std::span<const int64_t> bounds);

  // For a fault that does not tell whose it is: throws DeviceFault with `fault` and the first rank
  // that does not answer at once. All that are left call it at about the same time, or join it;
  // nothing else can be sent afterwards.
  [[noreturn]] void CallRoll(const std::string& fault);
  // If another rank calls the roll, joins it. Waits for messages do so by themselves.
  virtual void JoinRollCall() {}

 protected:
  // What is sent and received belongs to the roll call, not to what was broken off.
  bool calls_roll() const { return calls_roll_; }

 private:
  int rank_;
  int size_;
  double deadline_ = 60;
  bool calls_roll_ = false;
  RankTraffic traffic_;
  std::vector<float> out_, in_;  // rows of messages
};

}  // namespace talon

#endif  // TALON_COMPUTE_RANKS_RANKS_H_
