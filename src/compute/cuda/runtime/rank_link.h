// A direct way between the GPUs of several ranks, without the host's memory: NCCL, where the build
// has it (nccl_link.cc; else no_nccl.cc takes its place).
//
// Exchanges are queued on the stream. A rank that is gone leaves them, and all that is queued
// behind, unfinished: every wait for the stream must be one of wait.h, which gives up at the
// ranks' deadline. Used by the backend's thread.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_RANK_LINK_H_
#define TALON_COMPUTE_CUDA_RUNTIME_RANK_LINK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compute/cuda/runtime/launch.h"
#include "compute/ranks/ranks.h"

namespace talon::cuda {

class RankLink {
 public:
  virtual ~RankLink() = default;

  // Rank r has the bytes of bounds[r] to bounds[r + 1] of device memory; then all have all.
  // REQUIRES: bounds [size + 1].
  virtual void AllGather(uint8_t* data, std::span<const int64_t> bounds) = 0;
  // Ranks::Gather. Waits, unless it is captured in a CUDA graph, so that nothing stays unfinished
  // where rows are projected between passes.
  virtual void Gather(uint8_t* data, std::span<const int64_t> bounds) = 0;

  // Throws DeviceFault, with the rank that is gone, if exchanges do not work any more or the host
  // has waited for `seconds` and may not wait longer.
  virtual void CheckWait(double seconds) = 0;
  // Ends what is queued, without the other ranks. The link cannot be used any more.
  virtual void Abort() = 0;
};

// Whether this build has NCCL.
bool HasNccl();

// Why the ranks' GPUs cannot be linked by NCCL, or "": a build lacks it, a rank does not want it,
// or two share a GPU. All ranks call it at the same time and get the same answer.
std::string WhyNoLink(const Stream& stream, Ranks* ranks, bool wanted);

// Connects the ranks' GPUs by NCCL; all ranks call it at the same time. Throws DeviceFault where
// NCCL fails. `ranks` must outlive the link. REQUIRES: WhyNoLink() is empty.
std::unique_ptr<RankLink> ConnectNccl(const Stream& stream, Ranks* ranks);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_RANK_LINK_H_
