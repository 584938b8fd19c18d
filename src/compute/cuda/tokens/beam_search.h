// Draft trees that grow on the device (beam_search.h of compute).
#ifndef TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_
#define TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/math.h"
#include "base/status.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/tokens/beam_layout.h"
#include "compute/cuda/tokens/top_k.h"
#include "compute/trees/beam_search.h"

namespace talon::cuda {

// The beams of all trees and levels, device memory: [levels][trees][width] each (BeamLayout).
struct Beams {
  int32_t* tokens;
  int32_t* parents;     // rows of the kept outputs
  int32_t* candidates;  // their numbers (BeamLayout)
  float* scores;
  uint64_t* masks;  // [levels][trees][width][words]
  int words;
};

class CudaBeamSearch : public BeamSearch {
 public:
  // Null where trees may have more candidates than the kernels handle.
  static Result<std::unique_ptr<CudaBeamSearch>> Create(Context* context, const BeamLimits& limits,
                                                        std::span<const int32_t> token_ids);

  ~CudaBeamSearch() override;

  void RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                 MatrixView kept) override;
  void Start(std::span<const BeamRoot> roots) override;
  void Load(Pass* pass, MatrixView kept, MatrixView inputs) override;
  void Expand(MatrixView logits, MatrixView outputs, MatrixView kept) override;
  // Also sends the rankings to the host, ahead of the pass.
  void LoadTrees(Pass* pass, std::span<const TreePlace> places) override;
  std::span<const TopKEntry> Read() override;

 private:
  CudaBeamSearch(Context* context, const BeamLimits& limits)
      : context_(context),
        limits_(limits),
        words_(CeilDiv(limits.levels * limits.width, 64)),
        top_k_scratch_(&context->stream(), &generation_) {}
  const Stream& stream() const { return context_->stream(); }
  Status Allocate(std::span<const int32_t> token_ids);
  RankedChunks Rank(MatrixView logits);
  Beams AllBeams() const;
  template <typename T>
  T* As(const Buffer& buffer) const {
    return static_cast<T*>(buffer.data());
  }
  BeamLayout layout() const { return {limits_.width, trees_}; }

  Context* context_;
  BeamLimits limits_;
  int words_;
  uint64_t generation_ = 0;  // no CUDA graph holds the scratch's address
  Scratch top_k_scratch_;
  int trees_ = 0;
  int level_ = 1;        // the present beam's
  bool sent_ = false;    // whether the rankings of the levels so far were sent to the host
  Buffer token_ids_;     // [draft vocabulary]
  Buffer root_entries_;  // [slots][width]
  Buffer roots_;         // [trees] BeamRoot
  Buffer beams_;
  Buffer entries_;                 // BeamLayout
  Buffer keys_;                    // [trees][candidates], scratch of LoadTrees
  Buffer rankings_;                // the entries in pinned host memory
  cudaEvent_t arrived_ = nullptr;  // after they were sent
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_BEAM_SEARCH_H_
