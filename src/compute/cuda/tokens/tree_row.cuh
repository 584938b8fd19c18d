// Rows of the pass that verifies a draft tree, written on the device.
#ifndef TALON_COMPUTE_CUDA_TOKENS_TREE_ROW_CUH_
#define TALON_COMPUTE_CUDA_TOKENS_TREE_ROW_CUH_

#include <cstdint>

#include "compute/cuda/runtime/device_plan.h"
#include "compute/trees/tree_place.h"

namespace talon::cuda {

// What stands in the pass for a node besides its token and its ancestors among the drafts. Returns
// the mask that these are added to.
__device__ inline uint64_t* StartRow(const DevicePlan& plan, const TreePlace& place, int node,
                                     int depth) {
  const int row = place.root_row + node;
  const_cast<int32_t*>(plan.positions)[row] = place.position + depth;
  AttentionRow* attention = const_cast<AttentionRow*>(plan.attention_rows) + row;
  attention->num_keys = attention->prefix_len + place.above + 1 + depth;
  uint64_t* mask =
      const_cast<uint64_t*>(plan.ancestors) + static_cast<int64_t>(row) * plan.mask_words;
  for (int word = 0; word < plan.mask_words; ++word) {
    mask[word] = FirstKeys(place.above + 1 - 64 * word);  // all above, and the root
  }
  return mask;
}

__device__ inline void AddNode(const TreePlace& place, int node, uint64_t* mask) {
  const int bit = place.above + node;
  mask[bit / 64] |= uint64_t{1} << (bit % 64);
}

// Rows from `first` on, which no draft fills. By a whole thread block.
__device__ inline void RepeatRoot(const DevicePlan& plan, const TreePlace& place, int first) {
  const int32_t root = plan.tokens[place.root_row];
  for (int node = first + threadIdx.x; node < place.nodes; node += blockDim.x) {
    const_cast<int32_t*>(plan.tokens)[place.root_row + node] = root;
    AddNode(place, node, StartRow(plan, place, node, 1));
  }
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TOKENS_TREE_ROW_CUH_
