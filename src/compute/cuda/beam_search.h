// Draft trees that grow on the device (Backend::NewBeamSearch).
#ifndef TALON_COMPUTE_CUDA_BEAM_SEARCH_H_
#define TALON_COMPUTE_CUDA_BEAM_SEARCH_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/device_plan.h"
#include "compute/cuda/launch.h"

namespace talon::cuda {

class CudaBeamSearch : public BeamSearch {
 public:
  static Result<std::unique_ptr<CudaBeamSearch>> Create(const Stream& stream,
                                                        const BeamLimits& limits,
                                                        std::span<const int32_t> token_ids);

  void Start(std::span<const BeamRoot> roots, UploadRing* uploads);
  // Writes the beam's tokens and masks into the pass, and its parents' outputs to `inputs`.
  void Load(const DevicePlan& plan, MatrixView outputs, MatrixView inputs);
  // Ranks the beam's logits and forms the next beam.
  void Expand(MatrixView logits, void* top_k_scratch);
  // Of the levels expanded so far, device memory: [levels][trees][width][width].
  const TopKEntry* entries() const { return Entries(1); }
  size_t num_entries() const { return static_cast<size_t>(level_ - 1) * LevelEntries(); }
  const BeamLimits& limits() const { return limits_; }

 private:
  // What a beam of all trees is: [trees * width] each, masks [trees * width][words].
  struct Beam {
    int32_t* tokens;
    int32_t* parents;  // rows of the outputs
    float* scores;
    uint64_t* masks;
  };

  explicit CudaBeamSearch(const Stream& stream, const BeamLimits& limits)
      : stream_(stream), limits_(limits), words_((limits.levels * limits.width + 63) / 64) {}
  Status Allocate(std::span<const int32_t> token_ids);
  Beam BeamOf(int parity) const;
  size_t LevelEntries() const {
    return static_cast<size_t>(trees_) * limits_.width * limits_.width;
  }
  TopKEntry* Entries(int level) const {
    return static_cast<TopKEntry*>(entries_.data()) + (level - 1) * LevelEntries();
  }

  Stream stream_;
  BeamLimits limits_;
  int words_;
  int trees_ = 0;
  int level_ = 1;      // of the present beam
  Buffer token_ids_;   // [draft vocabulary]
  Buffer beams_[2];    // the present one and the next, by turns
  Buffer first_rows_;  // [trees] output row of each tree's node 0
  Buffer entries_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_BEAM_SEARCH_H_
