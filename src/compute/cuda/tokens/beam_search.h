// Draft trees that grow on the device (Backend::NewBeamSearch).
#ifndef TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_
#define TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/tokens/beam_layout.h"

namespace talon::cuda {

// The beams of all trees and levels, device memory: [levels][trees][width] each (BeamLayout).
struct Beams {
  int32_t* tokens;
  int32_t* parents;     // rows of the kept outputs
  int32_t* candidates;  // what they are numbered
  float* scores;
  uint64_t* masks;  // [levels][trees][width][words]
  int words;
};

class CudaBeamSearch : public BeamSearch {
 public:
  // Null where trees may have more candidates than the kernels handle.
  static Result<std::unique_ptr<CudaBeamSearch>> Create(const Stream& stream,
                                                        const BeamLimits& limits,
                                                        std::span<const int32_t> token_ids);

  // `top_k_scratch`: TopKScratchBytes() of the logits.
  void RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                 MatrixView kept, void* top_k_scratch);
  void Start(std::span<const BeamRoot> roots);
  void Load(const DevicePlan& plan, MatrixView kept, MatrixView inputs);
  void Expand(MatrixView logits, MatrixView outputs, MatrixView kept, void* top_k_scratch);
  // Also sends the rankings to the host: there when the stream has been waited for.
  void LoadTrees(const DevicePlan& plan, std::span<const TreePlace> places);

  int width() const { return limits_.width; }
  // Sends the rankings of the levels so far to the host. False: LoadTrees did.
  bool SendRankings();
  // What was sent. REQUIRES: the stream has been waited for since.
  std::span<const TopKEntry> rankings() const {
    return {As<const TopKEntry>(rankings_), layout().NumEntries(level_)};
  }

 private:
  explicit CudaBeamSearch(const Stream& stream, const BeamLimits& limits)
      : stream_(stream), limits_(limits), words_((limits.levels * limits.width + 63) / 64) {}
  Status Allocate(std::span<const int32_t> token_ids);
  Beams AllBeams() const;
  template <typename T>
  T* As(const Buffer& buffer) const {
    return static_cast<T*>(buffer.data());
  }
  BeamLayout layout() const { return {limits_.width, trees_}; }

  Stream stream_;
  BeamLimits limits_;
  int words_;
  int trees_ = 0;
  int level_ = 1;        // of the present beam
  bool sent_ = false;    // the rankings of the levels so far
  Buffer token_ids_;     // [draft vocabulary]
  Buffer root_entries_;  // [slots][width]
  Buffer roots_;         // [trees] BeamRoot
  Buffer beams_;
  Buffer entries_;   // BeamLayout
  Buffer keys_;      // [trees][candidates] of LoadTrees
  Buffer rankings_;  // the entries in pinned host memory
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_
