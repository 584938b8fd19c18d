// Draft trees become rows of the pass that verifies them (BeamSearch::LoadTrees).
#ifndef TALON_COMPUTE_CUDA_TOKENS_TREE_ROWS_H_
#define TALON_COMPUTE_CUDA_TOKENS_TREE_ROWS_H_

#include <cstdint>
#include <span>

#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/tokens/beam_layout.h"
#include "compute/trees/beam_search.h"

namespace talon::cuda {

struct TreeRowsCall {
  BeamLayout layout;
  int levels = 0;  // ranked so far
  const TopKEntry* entries = nullptr;
  const int32_t* token_ids = nullptr;
  const int32_t* beam_candidates = nullptr;  // [levels][trees][width]
  const float* beam_scores = nullptr;
  uint64_t* keys = nullptr;  // [trees][candidates], scratch
  DevicePlan plan;
  TopKEntry* rankings = nullptr;  // host memory: all entries go there
};

void WriteTreeRows(const Stream& stream, std::span<const TreePlace> places,
                   const TreeRowsCall& call);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_TREE_ROWS_H_
