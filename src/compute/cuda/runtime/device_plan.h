// A PassPlan in device memory: pointers that kernels take by value. The addresses stay the same
// from pass to pass as long as the pass's arrays fit the allocation, so that the kernels of a CUDA
// graph read the new contents.
#ifndef TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PLAN_H_
#define TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PLAN_H_

#include <cstdint>

#include "compute/cuda/runtime/attention_work.h"
#include "compute/pass_plan.h"

namespace talon::cuda {

struct DevicePlan {
  int rows = 0;
  int sequences = 0;
  int mask_words = 1;
  int outputs = 0;
  int features = 0;
  int score_requests = 0;
  int tile_queries = 0;                                // AttentionPlan
  PrefixKernelKind kernel = PrefixKernelKind::kTiles;  // AttentionPlan
  bool has_tails = true;                               // AttentionPlan
  bool only_sections = false;                          // AttentionPlan
  const int32_t* tokens = nullptr;                     // [rows]
  const int32_t* positions = nullptr;                  // [rows]
  const int32_t* places = nullptr;         // [rows] slot, or ~(staging row), PassPlan::PlaceOfRow
  const int32_t* prefix_len = nullptr;     // [rows]
  const int32_t* row_sequence = nullptr;   // [rows]
  const int32_t* sequence_rows = nullptr;  // [sequences + 1]
  const int32_t* nodes_before = nullptr;   // [sequences]
  const int32_t* staging_first = nullptr;  // [sequences]
  // Block list of a sequence: list = first_list[s] + (many_lists[s] ? layer * kv_heads + head : 0).
  const int32_t* first_list = nullptr;     // [sequences]
  const int32_t* many_lists = nullptr;     // [sequences] 0 or 1
  const int32_t* block_offsets = nullptr;  // [lists + 1]
  const int32_t* block_ids = nullptr;
  const uint64_t* ancestors = nullptr;    // [rows][mask_words]
  const int32_t* output_rows = nullptr;   // [outputs]
  const int32_t* feature_rows = nullptr;  // [features]
  const ScoreRequest* scores = nullptr;   // [score_requests]
  // The attention work (attention/plan.h). The number of items changes from pass to pass and is
  // read by the kernel.
  const AttentionRow* attention_rows = nullptr;  // [rows]
  const int32_t* node_places = nullptr;          // AttentionPlan
  const AttentionItem* items = nullptr;
  const int32_t* num_items = nullptr;  // [1]

#ifdef __CUDACC__
  // Block list of the sequence in a layer and kv head.
  __device__ const int32_t* BlocksOf(int sequence, int layer, int kv_head, int kv_heads) const {
    const int many = many_lists[sequence];
    return block_ids + block_offsets[first_list[sequence] + many * (layer * kv_heads + kv_head)];
  }
  // Location of a node's K/V: a slot, or ~(staging row). Nodes of this pass are its rows.
  __device__ int PlaceOf(int sequence, int node) const {
    const int before = nodes_before[sequence];
    return node >= before ? places[sequence_rows[sequence] + node - before]
                          : ~(staging_first[sequence] + node);
  }
#endif
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_RUNTIME_DEVICE_PLAN_H_
